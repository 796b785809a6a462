"""Mode "r" beside a writer that dispatches while the directory is read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TagFilter
from rocketstore.files.mapping_cache import QUEUE_MAPPINGS
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.store import read_only
from rocketstore.verify import check as verify
from rocketstore.verify.report import VerifyReport

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 65536,
    "max_hash_slot_num": 7,
    "max_index_num": 300,
}


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_queue_read_before_its_writer_went_on_lacks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """Queues are read one after the other. What was dispatched between two of them was taken for
    units that the first one lacks: a reader of a long log was sent past these messages."""
    monkeypatch.setattr("rocketstore.store.read_only.COMPARED_NBYTES", 0)
    recover = ConsumeQueue.recover
    left = [rounds]
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as writer:
        for number in range(10):
            assert writer.put("T", b"x", number % 2, None, "key").ok
        assert writer.wait_dispatched(120)

        def recover_and_write(queue: ConsumeQueue, log_end: int, *, whole: bool) -> Any:
            status = recover(queue, log_end, whole=whole)
            if queue.queue_id == 0 and left[0] > 0:
                left[0] -= 1
                for queue_id in (0, 1, 0):
                    assert writer.put("T", b"late", queue_id, None, "key").ok
                    assert writer.wait_dispatched(120)
            return status

        monkeypatch.setattr(ConsumeQueue, "recover", recover_and_write)
        with rocketstore.open(tmp_path / "s") as reader:
            monkeypatch.undo()
            assert left == [0]
            assert reader.recovery_report.gaps == []
            for queue_id, count in ((0, 5 + 2 * rounds), (1, 5 + rounds)):
                assert reader.max_offset_in_queue("T", queue_id) == count
                offsets = [
                    message.queue_offset
                    for message in reader.get_message("g", "T", queue_id, 0, 32).messages
                ]
                assert offsets == list(range(count))
            assert reader.verify().findings == []


def test_a_reading_that_is_given_up_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that vanished while the directory was read were opened again, and those of the first
    try stayed mapped: space of deleted files was not freed."""
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as writer:
        for number in range(10):
            assert writer.put("T", b"x", number % 2, None, "key").ok
        assert writer.wait_dispatched(120)
    before = len(QUEUE_MAPPINGS)
    recover, left = ConsumeQueue.recover, [3]

    def vanish(queue: ConsumeQueue, log_end: int, *, whole: bool) -> Any:
        if queue.queue_id == 1 and left[0] > 0:
            left[0] -= 1
            raise FileNotFoundError
        return recover(queue, log_end, whole=whole)

    monkeypatch.setattr(ConsumeQueue, "recover", vanish)
    with rocketstore.open(tmp_path / "s") as reader:
        assert left == [0]
        assert reader.max_offset_in_queue("T", 1) == 5
    assert len(QUEUE_MAPPINGS) == before


@pytest.mark.parametrize("tags", [None, "A"])
def test_a_queue_file_that_went_while_it_was_not_mapped_is_one_that_is_gone(
    tmp_path: Path, tags: str | None
) -> None:
    """With more queue files than may be mapped at a time, a reader maps some again. If the writer
    had deleted them by then, ``get_message`` raised ``FileNotFoundError``."""
    with rocketstore.open(
        tmp_path / "s", "x", start=False, mapped_file_size_consume_queue=200, **SMALL
    ) as writer:
        for number in range(40):
            assert writer.put("T", b"x", number % 2, "A").ok
        writer.wait_dispatched()
    with rocketstore.open(tmp_path / "s", derive="none") as reader:

        def get(queue_id: int, offset: int) -> rocketstore.GetMessageResult:
            wanted = None if tags is None else TagFilter(tags)
            return reader.get_message("g", "T", queue_id, offset, 4, filter=wanted)

        assert len(get(0, 0).messages) == len(get(0, 2).messages) == 4
        for queue in reader.reader.queues:
            for file in queue.queue.files:
                file.release_mapping()
        for queue_id in ("0", "1"):
            (tmp_path / "s" / "consumequeue" / "T" / queue_id / f"{0:020}").unlink()
        result = get(0, 2)
        assert (result.status.name, result.next_begin_offset) == ("OFFSET_FOUND_NULL", 10)
        assert [message.queue_offset for message in get(0, 10).messages] == [10, 11, 12, 13]
        assert (get(0, 2).status.name, get(1, 2).status.name) == ("OFFSET_FOUND_NULL",) * 2


def test_files_that_go_while_they_are_verified_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what a writer deletes, the mappings are left; ``verify`` raised ``FileNotFoundError``."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x", start=False, **SMALL) as writer:
        for number in range(700):
            assert writer.put("T", b"x" * 100, 0, None, f"k{number}").ok
        writer.wait_dispatched()
    original = verify.verify_parts

    def delete_and_verify(*arguments: Any, **others: Any) -> VerifyReport:
        for name in ("commitlog", "consumequeue/T/0", "index"):
            min((root / name).iterdir()).unlink()
        return original(*arguments, **others)

    monkeypatch.setattr(verify, "verify_parts", delete_and_verify)
    with rocketstore.open(root) as reader:
        report = reader.verify()
        assert report.findings == []


class OfExtUnits:
    """A filter that asks for ext units."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any) -> bool:
        self.seen.append(ext is not None)
        return True

    def is_matched_by_commit_log(self, message: Any) -> bool:
        return True


def test_what_lies_in_files_that_were_deleted_is_not_there(tmp_path: Path) -> None:
    """Ext files are read from the disk, and so is the head of what may be a damaged record:
    ``get_message`` with a filter and looking into the middle of a record raised
    ``FileNotFoundError`` when the writer had deleted the file since the store was opened."""
    root = tmp_path / "s"
    ext: dict[str, Any] = {
        "enable_consume_queue_ext": True,
        "mapped_file_size_consume_queue_ext": 4096,
    }
    with rocketstore.open(root, "x", start=False, **ext, **SMALL) as writer:
        for _ in range(200):
            assert writer.put("T", b"x" * 300, 0, "A").ok
        assert writer.put("T", b"x" * 8000, 0, "B").ok
        writer.wait_dispatched()
    with rocketstore.open(root) as reader:
        for name in ("commitlog", "consumequeue_ext/T/0"):
            min((root / name).iterdir()).unlink()
        asks = OfExtUnits()
        result = reader.get_message("g", "T", 0, 0, 4, filter=asks)
        assert [message.queue_offset for message in result.messages] == [0, 1, 2, 3]
        assert not any(asks.seen)
        assert len(reader.get_message("g", "T", 0, 0, 4, filter=TagFilter("A")).messages) == 4
        # An address without a unit matches every filter.
        assert len(reader.filter_units("T", 0, "A")) == 201
        assert reader.look_message_by_offset(5) is None
        with pytest.raises(ValueError, match="no record begins at log offset 5"):
            next(reader.scan(start=5))


MAPS = Path("/proc/self/maps")


def mapped_files(folder: Path) -> int:
    """How many mappings of files below ``folder`` the process has; other tests' go in between.
    Where the system does not show them, the queues' alone."""
    if not MAPS.exists():
        return len(QUEUE_MAPPINGS)
    return sum(str(folder) in line for line in MAPS.read_text().splitlines())


def test_refreshing_disturbs_no_reader(tmp_path: Path) -> None:
    """It closed the files under readers: a running scan, another thread's ``get_message``, a second
    ``tail``; each raised that the store is closed. Now the last reader closes them, and nothing
    keeps them longer."""
    ext = {"enable_consume_queue_ext": True, **SMALL}
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_consume_queue=200, **ext) as writer:
        for number in range(1000):
            assert writer.put("T", b"x" * 200, number % 2, "A", f"k{number}").ok
        assert writer.wait_dispatched(120)
    queues, before = len(QUEUE_MAPPINGS), mapped_files(tmp_path)
    assert before == 0 or not MAPS.exists()
    with rocketstore.open(tmp_path / "s") as store:
        scan = store.scan()
        assert next(scan).queue_offset == 0
        done, errors = threading.Event(), []

        def read() -> None:
            try:
                while not done.is_set():
                    assert len(store.get_message("g", "T", 1, 100, 4).messages) == 4
                    assert len(list(store.find(topic="T", key="k500"))) == 1
                    assert sum(1 for _ in store.scan()) == 1000
            except Exception as error:  # noqa: BLE001 - reported below
                errors.append(error)

        threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            store.refresh()
        done.set()
        for thread in threads:
            thread.join(120)
        assert errors == []
        assert sum(1 for _ in scan) == 999
        del scan
        held = len(QUEUE_MAPPINGS), mapped_files(tmp_path)
        store.refresh()
        assert (len(QUEUE_MAPPINGS), mapped_files(tmp_path)) == held
    assert (len(QUEUE_MAPPINGS), mapped_files(tmp_path)) == (queues, before)


@pytest.mark.parametrize(
    ("names", "opens"),
    [
        ([f"file{n}" for n in range(60)], True),  # deleted one after another: the reader keeps on
        (["file"] * 9, True),
        (["file"] * 10, False),  # one that a queue or the log needs is gone
        ([f"file{n // 5}" for n in range(200)], False),  # never a hang
    ],
    ids=["others each time", "one nine times", "one ten times", "without end"],
)
def test_files_that_vanish_while_a_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], opens: bool
) -> None:
    with rocketstore.open(tmp_path / "s", "x") as store:
        store.put("T", b"body")
    left = iter(names)
    whole = read_only.ReadOnlyParts

    def parts(*arguments: Any, **options: Any) -> Any:
        name = next(left, None)
        if name is not None:
            raise FileNotFoundError(2, "No such file or directory", name)
        return whole(*arguments, **options)

    monkeypatch.setattr(read_only, "ReadOnlyParts", parts)
    if not opens:
        with pytest.raises(FileNotFoundError, match="file"):
            rocketstore.open(tmp_path / "s")
        return
    with rocketstore.open(tmp_path / "s") as store:
        assert len(list(store.scan())) == 1
