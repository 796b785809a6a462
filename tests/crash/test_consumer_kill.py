"""A process that consumes, killed at random moments: nothing is skipped, and nothing that was
committed on disk comes again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

import rocketstore
from crash.consuming_program import GROUP, OPTIONS
from rocketstore import formats
from rocketstore.config_managers import ConsumerOffsetManager
from support.command_line import ENVIRONMENT

PROGRAM = Path(__file__).with_name("consuming_program.py")
KILLS = int(os.environ.get("ROCKETSTORE_CONSUMER_KILLS", "3"))
#: The whole log is read after each kill, so a store must not grow for ever.
KILLS_OF_A_STORE = 50
LONGEST_S = 0.35
Queue = tuple[str, int]


class Printed:
    """What the killed processes have printed."""

    def __init__(self) -> None:
        #: Offsets that were about to be settled, by queue.
        self.settled: dict[Queue, set[int]] = defaultdict(set)
        #: The last offset of each queue that was on disk.
        self.committed: dict[Queue, int] = {}
        #: Bodies that were written to another topic.
        self.sent_back: set[str] = set()

    def take(self, lines: list[str]) -> None:
        """Take the lines of one process; the last one may be incomplete."""
        started = dict(self.committed)
        for line in lines:
            word, *rest = line.split()
            if word in ("settle", "commit"):
                queue, offset = (rest[0], int(rest[1])), int(rest[2])
                if word == "commit":
                    self.committed[queue] = offset
                else:
                    # Nothing that was committed before the kill comes again.
                    assert offset >= started.get(queue, 0), (line, started)
                    self.settled[queue].add(offset)
            elif word in ("retried", "dead"):
                self.sent_back.add(rest[0])


def run_and_kill(root: Path, flush_disk_type: str, seed: int, seconds: float) -> list[str]:
    """Run the program, kill it, and return the lines that it printed whole."""
    process = subprocess.Popen(
        [sys.executable, PROGRAM, root, flush_disk_type, str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[str] = []
    first = process.stdout.readline()
    assert first == "open\n", first + process.stderr.read()
    reader = threading.Thread(target=lambda out: lines.extend(out), args=(process.stdout,))
    reader.start()
    time.sleep(seconds)
    assert process.poll() is None, process.stderr.read()
    process.kill()
    process.wait()
    reader.join()
    process.stdout.close()
    process.stderr.close()
    return [line for line in lines if line.endswith("\n")]


def check(root: Path, printed: Printed) -> None:
    """Check the table on disk, and the topics of retries, against what was printed."""
    manager = ConsumerOffsetManager(root)
    manager.load()
    with rocketstore.open(root, message_delay_level=OPTIONS["message_delay_level"]) as store:
        bodies = {
            message.body.decode()
            for message in store.scan()
            if message.topic == formats.TOPIC_SCHEDULE
            or message.topic.startswith((formats.TOPIC_RETRY_PREFIX, formats.TOPIC_DLQ_PREFIX))
        }
        assert printed.sent_back <= bodies
        for topic in store.topics():
            if topic.startswith(formats.TOPIC_DLQ_PREFIX) or topic == formats.TOPIC_SCHEDULE:
                continue
            for queue_id in store.queues(topic):
                queue = topic, queue_id
                offset = manager.query_offset(GROUP, topic, queue_id)
                assert printed.committed.get(queue, -1) <= offset
                assert offset <= store.max_offset_in_queue(*queue)
                missing = set(range(max(offset, 0))) - printed.settled[queue]
                assert not missing, (queue, sorted(missing)[:5])


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_killed_consumer_skips_nothing(
    flush_disk_type: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{flush_disk_type}-{random.SystemRandom().randrange(1 << 31)}"
    print(f"seed {name!r}")
    chance = random.Random(name)
    for first in range(0, KILLS, KILLS_OF_A_STORE):
        root, printed = tmp_path / f"store{first}", Printed()
        for kill in range(first, min(first + KILLS_OF_A_STORE, KILLS)):
            seconds = chance.random() ** 2 * LONGEST_S
            printed.take(run_and_kill(root, flush_disk_type, kill, seconds))
            check(root, printed)
        finish(root, printed)
        shutil.rmtree(root)
        with capsys.disabled():
            print(f"{flush_disk_type}: {min(first + KILLS_OF_A_STORE, KILLS)} kills")


def finish(root: Path, printed: Printed) -> None:
    """Consume the rest, and check that every message was handed out."""
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        while store.delays().pending:
            store.deliver_due()
        store.wait_dispatched()
        with store.consumer(GROUP, ["Orders", "Payments"], idle_timeout_s=0) as consumer:
            for message in consumer:
                topic = getattr(message, "retry_topic", message.topic)
                printed.settled[topic, message.queue_id].add(message.queue_offset)
        for topic in ("Orders", "Payments", formats.TOPIC_RETRY_PREFIX + GROUP):
            for queue_id in store.queues(topic):
                end = store.max_offset_in_queue(topic, queue_id)
                assert printed.settled[topic, queue_id] >= set(range(end))
        assert store.groups()[GROUP].total_lag == 0
