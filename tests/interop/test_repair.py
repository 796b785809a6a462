"""A long log whose queues and index are lost: RocketMQ 5.4 gives up old messages, rocketstore does
not.

RocketMQ from 5.4.0 on reads only the last ten log files when it rebuilds queues, and 5.0.0 to 5.3.1
rebuild none after an orderly stop. If rocketstore opens the store for writing and closes it, it is
whole for every version.
"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from interop import catalogue, maven, ours
from interop.asking import make_questions
from interop.cases import Asked, ask_java, ask_ours, copy
from interop.comparing import compare
from interop.harness import VERSIONS
from interop.workload import FEATURES, Job, Op

maven.require_java()

LOG_FILE_NBYTES = 16 * 1024
LOG_FILES = 16
CONFIG = {
    "mappedFileSizeCommitLog": str(LOG_FILE_NBYTES),
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
    "maxMessageSize": "4096",
    "messageDelayLevel": "2h",
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
}


def script() -> tuple[Op, ...]:
    """Messages of about 1 KiB for eight queues, each with a key of its own."""
    body = base64.b64encode(b"r" * 850).decode()
    return tuple(
        {
            "op": "put",
            "topic": "Long",
            "queueId": number % 8,
            "body": body,
            "flag": 0,
            "bornTs": 1_700_000_000_000 + number,
            "bornHost": "10.1.2.3:4567",
            "reconsume": 0,
            "props": {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number}", "TAGS": "t"},
        }
        for number in range(LOG_FILES * 17)
    )


def shown(answer: dict[str, Any]) -> int:
    return sum(len(row["messages"]) for row in answer["queues"])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_lost_queues_of_a_long_log_come_back(version: str, tmp_path: Path) -> None:
    job = Job(0, version, FEATURES["plain"], CONFIG, script())
    root = tmp_path / "store"
    with ours.Writing(root, "x", job) as writing:
        answers = writing.run(job.script)
        assert writing.store.wait_dispatched(ours.DEADLINE_S)
    assert len(list((root / "commitlog").iterdir())) >= LOG_FILES > 10
    for part in ("consumequeue", "index"):
        shutil.rmtree(root / part)

    keys = [
        {"op": "query", "topic": "Long", "key": f"k{number}", "max": 64}
        for number in range(len(job.script))
    ]
    wide = make_questions(list(zip(job.script, answers, strict=True)), 0, timed_keys=True)
    questions = [*wide, *keys]
    (theirs,) = ask_java(version, [Asked(job, copy(root, "lost"), questions)], tmp_path)
    assert theirs is not None
    if version >= "5.4":
        assert 0 < shown(theirs[1]) < len(job.script)
    else:
        # After an orderly stop 5.0.0 to 5.3.1 rebuild nothing.
        assert shown(theirs[1]) == (0 if version == "5.1.4" else len(job.script))

    ours.open_store(root, "r+", job).close()
    item = Asked(job, copy(root, "repaired"), questions)
    (theirs,) = ask_java(version, [item], tmp_path)
    assert theirs is not None
    assert shown(theirs[1]) == len(job.script)
    for number, answer in enumerate(theirs[len(wide) :]):
        (message,) = answer["messages"]
        assert message["offset"] == answers[number]["offset"]
    found = compare(questions, theirs, ask_ours(root, "r", item), "repaired")
    catalogue.record(
        "rebuild",
        version,
        [{"feature": "plain", "stores": 1, "compared": found.compared, "failed": 0, "known": {}}],
    )
    assert not found.failures, "\n".join(found.failures[:3])
