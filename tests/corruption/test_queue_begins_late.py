"""A queue that begins or continues at a queue offset other than 0: its records are served.

Dispatch skipped records whose queue offset was larger than the log before them could explain, even
if a complete run of them and the queue's own files agreed. If a queue began at 7, all its messages
were hidden, or the first few were lost, and fillers overwrote good units.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from support.directory import files_below
from support.record_factory import make_log

COUNT, PER_FILE = 30, 10
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": PER_FILE * formats.CONSUME_QUEUE_UNIT.nbytes,
    "max_hash_slot_num": 10,
    "max_index_num": 100,
    "broker_version": "5.3.3",
}
FILLER = formats.CONSUME_QUEUE_UNIT.struct.pack(0, formats.FILLER_UNIT_SIZE, 0)
Claims = Callable[[int, int], int]


def make_store(root: Path, claims: Claims, *, nbytes: int = 10) -> None:
    """Write two queues by turns, and let queue ``q``'s record ``n`` claim ``claims(q, n)``."""
    with rocketstore.open(root, "x", **OPTIONS) as store:
        for number in range(COUNT):
            for queue_id in (0, 1):
                body = (b"%d " % number).ljust(nbytes)
                assert store.put("Orders", body, queue_id, keys=f"k{number}").ok
    with rocketstore.open(root) as store:
        places = [(m.queue_id, m.queue_offset, m.physical_offset) for m in store.scan()]
    for queue_id, number, offset in places:
        claim(root, offset, claims(queue_id, number))


def claim(root: Path, offset: int, queue_offset: int) -> None:
    """Overwrite the queue offset of the record at ``offset``."""
    start = offset - offset % OPTIONS["mapped_file_size_commit_log"]
    with open(root / "commitlog" / formats.offset_to_file_name(start), "r+b") as file:
        file.seek(offset - start + formats.RECORD_HEAD.at("queue_offset"))
        file.write(queue_offset.to_bytes(8, "big"))


def write_queue_as_a_broker(root: Path, queue_id: int, claims: Claims) -> None:
    """Create the queue's files as RocketMQ does: fillers before the first unit."""
    folder = root / "consumequeue" / "Orders" / str(queue_id)
    old = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    shutil.rmtree(folder)
    folder.mkdir()
    width = len(FILLER)
    files: dict[int, bytearray] = {}
    for number in range(COUNT):
        index = claims(queue_id, number)
        start = index - index % PER_FILE
        if start not in files:
            files[start] = bytearray(PER_FILE * width)
            if number == 0:
                files[start][: (index - start) * width] = FILLER * (index - start)
        at = (index - start) * width
        files[start][at : at + width] = old[number * width : (number + 1) * width]
    for start, content in files.items():
        (folder / formats.offset_to_file_name(start * width)).write_bytes(content)


def lose(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def served(store: Any, queue_id: int, first: int, count: int) -> list[int]:
    """Numbers of the messages that a consumer gets from ``first`` on."""
    found = {}
    for index in range(first, first + count):
        for message in store.get_message("g", "Orders", queue_id, index, 1).messages:
            found[message.queue_offset] = int(message.body)
    return list(found.values())


@pytest.mark.parametrize("mode", ["r", "r full", "r+"])
@pytest.mark.parametrize("files", ["lost", "a broker's"])
@pytest.mark.parametrize("first", [1, 7, 36, 1000, 5003, 2**20 + 3, 2**40])
def test_a_queue_that_begins_late(tmp_path: Path, first: int, files: str, mode: str) -> None:
    root = tmp_path / "s"

    def claims(queue_id: int, number: int) -> int:
        return number + (first if queue_id == 1 else 0)

    make_store(root, claims)
    if files == "lost":
        lose(root, "consumequeue", "rocketstore.state")
    else:
        write_queue_as_a_broker(root, 1, claims)
        lose(root, "rocketstore.state")
    before = files_below(root / "consumequeue") if files != "lost" else {}
    kinds = {"derive": "full"} if mode == "r full" else {}
    with rocketstore.open(root, mode.split()[0], **kinds, **OPTIONS) as store:
        assert served(store, 1, first, COUNT) == list(range(COUNT))
        assert served(store, 0, 0, COUNT) == list(range(COUNT))
        assert (store.min_offset_in_queue("Orders", 1), store.max_offset_in_queue("Orders", 1)) == (
            first,
            first + COUNT,
        )
        assert store.recovery_report.refused == []
        findings = store.verify().findings
        # Where the folder is gone, that is one.
        assert findings == [] or (files == "lost" and mode != "r+")
    if files != "lost":
        assert files_below(root / "consumequeue") == before


@pytest.mark.parametrize("first", [7, 1000, 2**20 + 3])
def test_the_next_put_and_the_next_opening_go_on(tmp_path: Path, first: int) -> None:
    root = tmp_path / "s"
    make_store(root, lambda _, number: number + first)
    lose(root, "consumequeue", "rocketstore.state")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert store.put("Orders", b"30", 1).queue_offset == first + COUNT
    lose(root, "consumequeue")  # the state file is true, and the queues are not there
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert served(store, 1, first, COUNT + 1) == list(range(COUNT + 1))
    with rocketstore.open(root, derive="none", **OPTIONS) as store:
        assert served(store, 1, first, COUNT + 1) == list(range(COUNT + 1))


@pytest.mark.parametrize("jump", [1, 300, 900])
def test_a_row_after_a_gap(tmp_path: Path, jump: int) -> None:
    root = tmp_path / "s"

    def claims(queue_id: int, number: int) -> int:
        return number + (jump if number >= 12 else 0)

    make_store(root, claims)
    lose(root, "consumequeue", "rocketstore.state")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert served(store, 1, 12 + jump, COUNT - 12) == list(range(12, COUNT))
        assert ("Orders", 1, 12, 12 + jump) in store.recovery_report.gaps
        assert store.recovery_report.refused == []


@pytest.mark.parametrize("jump", [2**15, 2**20, 2**32])
def test_what_has_to_be_filled_is_bounded(tmp_path: Path, jump: int) -> None:
    root = tmp_path / "s"
    make_store(root, lambda _, number: number + (jump if number >= 12 else 0))
    lose(root, "consumequeue", "rocketstore.state")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert store.max_offset_in_queue("Orders", 1) == 12
        assert len(store.recovery_report.refused) == 2 * (COUNT - 12)
    assert sum(len(content) for content in files_below(root / "consumequeue").values()) < 1 << 16


@pytest.mark.parametrize("wrong", [0, 12, COUNT - 1])
@pytest.mark.parametrize("claimed", [2**13, 2**40, 2**63 - 1])
def test_one_number_that_stands_alone(tmp_path: Path, claimed: int, wrong: int) -> None:
    root = tmp_path / "s"
    make_store(root, lambda _, number: claimed if number == wrong else number)
    lose(root, "consumequeue", "rocketstore.state")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        others = [number for number in range(COUNT) if number != wrong]
        assert served(store, 1, 0, COUNT) == others
        assert len(store.recovery_report.refused) == 2


@pytest.mark.parametrize("claimed", [0, 3, 7 + 2**9, 2**40])
def test_a_wrong_second_number_is_not_held_against_the_first(tmp_path: Path, claimed: int) -> None:
    root = tmp_path / "s"
    make_store(root, lambda _, number: claimed if number == 1 else number + 7)
    lose(root, "consumequeue", "rocketstore.state")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert set(served(store, 1, 7, COUNT)) >= set(range(COUNT)) - {1}


def test_a_single_message_at_a_small_number(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        place = store.put("Orders", b"0", 1).physical_offset
    claim(root, place, 36)
    lose(root, "consumequeue", "rocketstore.state")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert served(store, 1, 36, 1) == [0]


def test_records_of_megabytes_are_a_row_too(tmp_path: Path) -> None:
    root = tmp_path / "s"
    options = {**OPTIONS, "mapped_file_size_commit_log": 32 << 20}
    with rocketstore.open(root, "x", **options) as store:
        places = [store.put("Orders", b"x" * (3 << 20), 1).physical_offset for _ in range(3)]
    with open(root / "commitlog" / formats.offset_to_file_name(0), "r+b") as file:
        for number, place in enumerate(places):
            file.seek(place + formats.RECORD_HEAD.at("queue_offset"))
            file.write((10**6 + number).to_bytes(8, "big"))
    lose(root, "consumequeue", "rocketstore.state")
    with rocketstore.open(root, "r", **options) as store:
        assert store.max_offset_in_queue("Orders", 1) == 10**6 + 3


@pytest.mark.parametrize("first", [7, 5000, 2**20 + 3])
def test_after_expiry_with_the_queue_files_lost(tmp_path: Path, first: int) -> None:
    root = tmp_path / "s"
    make_store(root, lambda _, number: number + first, nbytes=3000)
    (root / "commitlog" / formats.offset_to_file_name(0)).unlink()
    lose(root, "consumequeue", "rocketstore.state", "index")
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        left = [int(m.body) for m in store.scan() if m.queue_id == 1]
        assert 0 < len(left) < COUNT
        assert served(store, 1, first + left[0], len(left)) == left
        assert store.min_offset_in_queue("Orders", 1) == first + left[0]


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("first", [7, 36, 999, 98765, 2**20, 2**40])
def test_a_light_queue_that_begins_late(tmp_path: Path, first: int, mode: str) -> None:
    root = tmp_path / "s"
    write_log(
        root,
        [
            {"queue_offset": number, "properties": named("%LMQ%a", first + number)}
            for number in range(9)
        ],
    )
    with rocketstore.open(root, mode, **OPTIONS) as store:
        low, high = store.min_offset_in_queue("%LMQ%a", 0), store.max_offset_in_queue("%LMQ%a", 0)
        assert (low, high) == (first, first + 9)
        assert store.recovery_report.refused == []
        for number in range(9):
            (message,) = store.get_message("g", "%LMQ%a", 0, first + number, 1).messages
            assert message.queue_offset == number


def named(name: str, number: int) -> bytes:
    """Properties of a record that goes into another queue, too."""
    text = f"INNER_MULTI_DISPATCH\1{name}\2INNER_MULTI_QUEUE_OFFSET\1{number}\2"
    return text.encode()


def write_log(root: Path, records: list[dict[str, Any]]) -> None:
    """Write a store that has a log and nothing else."""
    (root / "commitlog").mkdir(parents=True)
    log = make_log(*({"topic": b"Orders", "queue_id": 1, **fields} for fields in records))
    nbytes = OPTIONS["mapped_file_size_commit_log"]
    (root / "commitlog" / formats.offset_to_file_name(0)).write_bytes(log.ljust(nbytes, b"\0"))


@pytest.mark.parametrize("first", [1, 7, 1000, 2**20 + 3, 2**40])
def test_the_job_that_makes_queues_and_the_check_agree(tmp_path: Path, first: int) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from rocketstore.spark.jobs.fsck.job import check_store
    from rocketstore.spark.jobs.queue_units import build_queues

    root = tmp_path / "s"
    make_store(root, lambda queue_id, number: number + first * queue_id)
    lose(root, "consumequeue", "rocketstore.state")
    size = OPTIONS["mapped_file_size_consume_queue"]
    options = {"mapped_file_size_consume_queue": size, "broker_version": "5.3.3"}
    rows = build_queues(None, root, tmp_path / "made", split_bytes=3000, **options)
    assert [(row.min_offset, row.max_offset, row.refused) for row in rows] == [
        (0, COUNT, 0),
        (first, first + COUNT, 0),
    ]
    with rocketstore.open(root, "r+", **OPTIONS):
        pass
    assert files_below(tmp_path / "made") == files_below(root / "consumequeue")
    assert check_store(None, root).ok
