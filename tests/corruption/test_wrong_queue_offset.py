"""One record's queue offset is wrong (no CRC covers it): all others keep their places.

A soak against RocketMQ found that dispatch also skipped the records after such a record, because
the queue seemed to have no place for them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import formats

COUNT, WRONG = 12, 5
OPTIONS = {"mapped_file_size_commit_log": 65536, "max_hash_slot_num": 10, "max_index_num": 100}


def make_store(root: Path) -> list[int]:
    """Write two queues by turns; return the log offsets of the first one's records."""
    with rocketstore.open(root, "x", **OPTIONS) as store:
        for number in range(COUNT):
            for queue_id in (0, 1):
                assert store.put("T", b"body %d" % number, queue_id, keys=f"k{number}").ok
    with rocketstore.open(root) as store:
        return [m.physical_offset for m in store.scan() if m.queue_id == 0]


def claim(root: Path, offset: int, queue_offset: int) -> None:
    """Overwrite the queue offset of the record at ``offset``."""
    place = next(at for field, at in formats.RECORD_HEAD.placed() if field.name == "queue_offset")
    with open(root / "commitlog" / formats.offset_to_file_name(0), "r+b") as file:
        file.seek(offset + place)
        file.write(queue_offset.to_bytes(8, "big"))


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("lost", [False, True], ids=["queues there", "queues lost"])
@pytest.mark.parametrize("claimed", [0, 3, 4, 6, 7, 8, 9, 11, 12, 1000, 5 + 2**25, 2**62])
def test_others_keep_their_places(tmp_path: Path, claimed: int, lost: bool, mode: str) -> None:
    root = tmp_path / "s"
    offsets = make_store(root)
    claim(root, offsets[WRONG], claimed)
    (root / "rocketstore.state").unlink()
    (root / "abort").touch()
    if lost:
        shutil.rmtree(root / "consumequeue")
    with rocketstore.open(root, mode, **OPTIONS) as store:
        for number in range(COUNT):
            for queue_id in (0, 1):
                result = store.get_message("g", "T", queue_id, number, 1)
                if queue_id == 0 and number == WRONG:
                    continue
                (message,) = result.messages
                assert message.body == b"body %d" % number
        assert store.max_offset_in_queue("T", 0) == COUNT
        found = [bytes(m.body) for m in store.find(topic="T", key=f"k{WRONG}")]
        assert found == [b"body %d" % WRONG] * 2
        assert not store.verify().ok


@pytest.mark.parametrize("claimed", [1, 2, 5, 2**40])
def test_the_first_record_of_a_queue(tmp_path: Path, claimed: int) -> None:
    root = tmp_path / "s"
    offsets = make_store(root)
    claim(root, offsets[0], claimed)
    (root / "rocketstore.state").unlink()
    shutil.rmtree(root / "consumequeue")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        bodies = []
        for number in range(1, COUNT):
            bodies += [m.body for m in store.get_message("g", "T", 0, number, 1).messages]
        assert bodies == [b"body %d" % number for number in range(1, COUNT)]
