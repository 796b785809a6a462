"""A store of 2,000 queues and 48 MiB of log: sampled answers, and what opening costs."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from interop import catalogue, maven, ours
from interop.cases import copy
from interop.comparing import compare
from interop.harness import VERSIONS, Driver
from interop.workload import FEATURES, Job
from rocketstore import Message
from support.own_process import run_python

maven.require_java()

QUEUES = 2000
LOG_FILE_NBYTES = 16 * 1024 * 1024
BODY = b"l" * 900
MESSAGES = 2 * LOG_FILE_NBYTES // 1000 + 2000
CONFIG = {
    "mappedFileSizeCommitLog": str(LOG_FILE_NBYTES),
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
    "messageDelayLevel": "2h",
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
}
OPEN = """
import json, sys, time
import rocketstore
began = time.perf_counter()
store = rocketstore.open(sys.argv[1], sys.argv[2])
took = time.perf_counter() - began
text = open("/proc/self/status").read()
print(json.dumps({"openMs": took * 1000, "peakKiB": int(text.split("VmHWM:")[1].split()[0])}))
store.close()
"""


def write(root: Path, job: Job) -> list[Any]:
    """Put everything, round robin over the queues of 20 topics."""
    with ours.open_store(root, "x", job) as store:
        results = store.put_many(
            [
                Message(
                    f"Topic{number % 20}",
                    BODY,
                    queue_id=number % QUEUES // 20,
                    properties={"KEYS": f"k{number}", "TAGS": "t"},
                )
                for number in range(MESSAGES)
            ]
        )
        rows = [(row.physical_offset, row.queue_offset, row.store_timestamp) for row in results]
        assert store.wait_dispatched(ours.DEADLINE_S)
    return rows


def questions(rows: list[Any], seed: int) -> list[dict[str, Any]]:
    """Some of everything about 80 of the messages."""
    pick = random.Random(seed)
    asked: list[dict[str, Any]] = [{"op": "wait"}]
    for number in pick.sample(range(MESSAGES), 80):
        topic, queue_id = f"Topic{number % 20}", number % QUEUES // 20
        offset, queue_offset, stored = rows[number]
        queue = {"topic": topic, "queueId": queue_id}
        asked += [
            {"op": "get", **queue, "offset": queue_offset, "max": 32},
            {"op": "bytime", **queue, "ts": stored + pick.choice((-1, 0, 1))},
            {"op": "query", "topic": topic, "key": f"k{number}", "max": 64},
            {"op": "look", "offset": offset},
        ]
    return asked


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_sampled_answers_are_the_same(version: str, tmp_path: Path) -> None:
    job = Job(0, version, FEATURES["plain"], CONFIG, ())
    root = tmp_path / "store"
    rows = write(root, job)
    assert len(list((root / "commitlog").iterdir())) == 3
    assert len(list(root.glob("consumequeue/*/*"))) == QUEUES
    asked = questions(rows, VERSIONS.index(version))
    target = copy(root, "java")
    with Driver(version, tmp_path) as driver:
        began = time.perf_counter()
        opened = driver.open("large", target, job.config).result()
        took_ms = (time.perf_counter() - began) * 1000
        theirs = driver.ask("large", asked).result()["answers"]
        peak = driver.peak_memory_nbytes() // 1024
    assert opened["load"]
    figures = {"RocketMQ": {"openMs": took_ms, "peakKiB": peak}}
    for mode in ("r", "r+"):
        done = run_python(OPEN, str(root), mode)
        assert done.returncode == 0, done.stderr
        figures[f'rocketstore "{mode}"'] = json.loads(done.stdout)
        with ours.open_store(root, mode, job) as store:
            found = compare(asked, theirs, ours.ask(store, asked), f"mode {mode!r}")
        assert not found.failures, "\n".join(found.failures[:3])
    print(version, json.dumps(figures))
    row = {"feature": "plain", "stores": 1, "compared": 2 * len(asked), "failed": 0, "known": {}}
    catalogue.record("large", version, [{**row, "figures": figures}])
