"""A writer in a process of its own, killed at a random moment, and a look at what it left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import rocketstore
from rocketstore import testing
from rocketstore.testing import check_invariants

WRITER = Path(__file__).with_name("writer.py")
#: No writer takes so long, however busy the machine is.
DEADLINE_S = 280.0


class KillMoment(NamedTuple):
    """When to kill: ``delay_s`` after the start of the process, or after the store's opening."""

    behind_opening: bool
    delay_s: float

    @classmethod
    def choose(cls, chance: random.Random) -> KillMoment:
        """One in five falls into start-up and recovery, the rest into writing."""
        if chance.random() < 0.2:
            return cls(False, 0.05 + chance.random() * 0.25)
        return cls(True, chance.choice((0.0, chance.random() * 0.02, chance.random() * 0.15)))


class Acknowledged:
    """What the killed writers acknowledged about one store."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, int, int, str, str]] = []

    def take(self, output: bytes) -> None:
        lines = output.split(b"\n")[:-1]  # what follows the last line end was never finished
        for line in lines:
            if line == b"open":
                continue
            offset, topic, queue_id, queue_offset, body, key = line.decode().split("\t")
            self.rows.append((int(offset), topic, int(queue_id), int(queue_offset), body, key))

    def promises(self) -> list[testing.Acknowledged]:
        """The same for ``check_invariants``."""
        return [
            testing.Acknowledged(offset, topic, queue_id, queue_offset, body.encode(), (key,))
            for offset, topic, queue_id, queue_offset, body, key in self.rows
        ]


def run_and_kill(
    root: Path, flush_disk_type: str, seed: int, moment: KillMoment, *, least_rows: int = 0
) -> bytes:
    """Start a writer, kill it at ``moment``, but not before ``least_rows`` messages were
    acknowledged; return what it had printed."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, str(WRITER), str(root), flush_disk_type, str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    os.set_blocking(process.stdout.fileno(), False)
    collected = bytearray()
    begun = time.monotonic()
    deadline = begun + (DEADLINE_S if moment.behind_opening else moment.delay_s)
    opened = False
    while time.monotonic() < deadline or collected.count(b"\n") <= least_rows > 0:
        assert time.monotonic() < begun + DEADLINE_S, "the writer did not get so far in time"
        collected += process.stdout.read() or b""
        if moment.behind_opening and not opened and collected.startswith(b"open\n"):
            opened, deadline = True, time.monotonic() + moment.delay_s
        if process.poll() is not None:
            raise AssertionError(f"the writer ended: {process.stderr.read().decode()}")
        time.sleep(0.001)
    assert opened or not moment.behind_opening, "the writer did not open the store in time"
    process.send_signal(signal.SIGKILL)
    process.wait()
    os.set_blocking(process.stdout.fileno(), True)
    collected += process.stdout.read()
    process.stderr.close()
    process.stdout.close()
    return bytes(collected)


def check_store(root: Path, acknowledged: Acknowledged) -> None:
    """Reopen for writing and compare with what was acknowledged."""
    with rocketstore.open(root, "r+") as store:
        report = store.recovery_report
        assert not report.damaged
        assert not report.gaps
        for offset, topic, queue_id, queue_offset, body, key in acknowledged.rows:
            message = store.look_message_by_offset(offset)
            assert message is not None, f"the acknowledged message at {offset} is gone"
            assert message.body.decode() == body
            assert (message.topic, message.queue_id) == (topic, queue_id)
            assert message.queue_offset == queue_offset
            found = store.get_message("g", topic, queue_id, queue_offset, 1).messages
            assert [m.physical_offset for m in found] == [offset]
            assert offset in [m.physical_offset for m in store.find(topic=topic, key=key)]
        check_order(store)
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    check_invariants(
        root, acknowledged=acknowledged.promises(), clock_steps=True, reopen=False
    ).require()


def check_order(store: rocketstore.DefaultMessageStore) -> None:
    """Every queue counts 0, 1, 2, ... in log order, and ends where it says."""
    ends: dict[tuple[str, int], int] = {}
    for message in store.scan():
        key = (message.topic, message.queue_id)
        assert message.queue_offset == ends.get(key, 0)
        ends[key] = message.queue_offset + 1
    for (topic, queue_id), end in ends.items():
        assert store.max_offset_in_queue(topic, queue_id) == end
