"""A log that a real RocketMQ distributed over several folders: read, and copied into one."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import rocketstore
from interop import maven
from interop.harness import VERSIONS, Driver
from support.command_line import run

maven.require_java()

SEGMENT_NBYTES = 64 * 1024
MESSAGES = 600
CONFIG = {
    "mappedFileSizeCommitLog": str(SEGMENT_NBYTES),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "1000",
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
}


def body_of(number: int) -> bytes:
    return f"{number:06d}".encode() * 100


def write(version: str, scratch: Path, config: dict[str, str]) -> list[dict[str, object]]:
    """Let RocketMQ put all messages and shut down in order; return its answers."""
    writes = [
        {"op": "put", "topic": "T", "queueId": number % 4, "props": {"KEYS": f"k{number}"},
         "body": base64.b64encode(body_of(number)).decode()}
        for number in range(MESSAGES)
    ]  # fmt: skip
    with Driver(version, scratch) as driver:
        driver.open("s", scratch / "store", config).result()
        answers = driver.script("s", writes).result()["answers"]
        driver.ask("s", [{"op": "wait"}]).result()
        driver.close(["s"])
    return list(answers)


def served(version: str, scratch: Path, root: Path, config: dict[str, str]) -> list[int]:
    """Return the log offsets that RocketMQ serves of a store."""
    with Driver(version, scratch) as driver:
        opened = driver.open("s", root, config).result()
        assert opened["load"], opened
        gets = [
            {"op": "get", "topic": "T", "queueId": queue, "offset": first, "max": 32}
            for queue in range(4)
            for first in range(0, MESSAGES // 4, 25)  # a get ends at the end of a queue file
        ]
        _, *got = driver.ask("s", [{"op": "wait"}, *gets]).result()["answers"]
        driver.close(["s"])
    return sorted({row["offset"] for answer in got for row in answer["messages"]})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_that_rocketmq_distributed(version: str, tmp_path: Path) -> None:
    disks = [tmp_path / "disk2", tmp_path / "disk1", tmp_path / "disk3"]
    for disk in disks:
        disk.mkdir()
    config = {**CONFIG, "storePathCommitLog": ",".join(map(str, disks))}
    answers = write(version, tmp_path, config)
    root = tmp_path / "store"
    held = [len(list(disk.iterdir())) for disk in disks]
    assert min(held) >= 2, held
    offsets = [answer["offset"] for answer in answers]

    with rocketstore.open(root, store_path_commit_log=config["storePathCommitLog"]) as store:
        found = [(one.physical_offset, bytes(one.body)) for one in store.scan()]
        assert found == [(at, body_of(number)) for number, at in enumerate(offsets)]
        for number in range(0, MESSAGES, 37):
            (hit,) = store.find(topic="T", key=f"k{number}")
            assert hit.physical_offset == offsets[number]
        assert store.verify().ok
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    verdict = json.loads(run("doctor", root, "--config", file, "-f", "json").stdout)
    assert verdict["state"] == "well", verdict
    run("clone", root, tmp_path / "copy", "--config", file)
    assert served(version, tmp_path, tmp_path / "copy", CONFIG) == offsets
