"""Stores with BatchConsumeQueues: put, read, reopened, lost, damaged, and declared wrongly."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from crash.test_failures import full_disk, no_room_for
from rocketstore import ConfigError, MessageStoreConfig, StoreFullError, TagFilter, formats
from rocketstore.inner_batch import unit_of
from rocketstore.queues.queue_types import queue_types, refuse_contradictions
from rocketstore.store.verifying import verify_files
from support.directory import files_below
from support.own_process import run_python

UNIT = formats.BATCH_QUEUE_UNIT
INNER = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP
SEGMENT = 2048
START = 1_700_000_000_000
OPTIONS: dict[str, Any] = {
    "broker_version": "5.3.3",
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 320,
    "mapper_file_size_batch_consume_queue": 10 * UNIT.nbytes,
    "max_hash_slot_num": 7,
    "max_index_num": 50,
    "topic_attributes": {"BCQ": {"queue.type": "BatchCQ"}},
}
#: Messages of each record put; 0: a message that is no batch.
COUNTS = [3, 0, 1, 5, 2, 0, 7, 3, 3, 0, 32, 4, 2, 9, 1, 0, 5, 6, 2, 3, 8, 1, 1, 2, 30, 4, 0, 3]


class Model:
    """What was put on queue 0 of ``BCQ``: base, count, log offset, tags and time of each record."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, int, str, int]] = []

    @property
    def end(self) -> int:
        return self.records[-1][0] + self.records[-1][1] if self.records else 0

    def put(self, store: rocketstore.DefaultMessageStore, count: int, tags: str) -> None:
        batch = {"sys_flag": INNER, "properties": {"INNER_NUM": str(count)}} if count else {}
        result = store.put("BCQ", b"b" * (10 + count), 0, tags, f"k{len(self.records)}", **batch)
        assert result.ok
        assert result.queue_offset == self.end
        row = (self.end, count or 1, result.physical_offset, tags, result.store_timestamp)
        self.records.append(row)

    def from_offset(self, offset: int) -> list[tuple[int, int]]:
        """(base, log offset) of the records that hold ``offset`` and what is after it."""
        return [(base, at) for base, count, at, _, _ in self.records if base + count > offset]


class Clock:
    """Five milliseconds later every fourth time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        return START + 5 * (self.asked // 4)


def fill(root: Path, **options: Any) -> Model:
    model = Model()
    with rocketstore.open(root, "x", clock=Clock(), **{**OPTIONS, **options}) as store:
        for number, count in enumerate(COUNTS):
            model.put(store, count, f"t{number % 3}")
            store.put("Plain", b"p", 0, "t0", f"p{number}")
    return model


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    root = tmp_path_factory.mktemp("batch") / "store"
    return root, fill(root)


@pytest.fixture
def made(pristine: tuple[Path, Model], tmp_path: Path) -> tuple[Path, Model]:
    root = tmp_path / "store"
    shutil.copytree(pristine[0], root)
    return root, pristine[1]


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "batchconsumequeue" / "BCQ" / "0").iterdir())


def all_read(store: rocketstore.DefaultMessageStore, offset: int = 0) -> list[tuple[int, int]]:
    found, end = [], store.max_offset_in_queue("BCQ", 0)
    while offset < end:
        result = store.get_message("g", "BCQ", 0, offset)
        assert result.status.name == "FOUND"
        found += [(m.queue_offset, m.physical_offset) for m in result.messages]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def assert_holds(store: rocketstore.DefaultMessageStore, model: Model) -> None:
    assert store.topics() == ["BCQ", "Plain"]
    assert store.min_offset_in_queue("BCQ", 0) == 0
    assert store.max_offset_in_queue("BCQ", 0) == model.end
    assert all_read(store) == model.from_offset(0)
    view = store.queue_view("BCQ", 0)
    assert view["base_offset"].tolist() == [record[0] for record in model.records]
    assert view["batch_size"].tolist() == [record[1] for record in model.records]
    assert store.dispatch_behind_nbytes == 0


def rewrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


# --- whole stores -----------------------------------------------------------------------------


@pytest.mark.parametrize("derive", ["tail", "full", "none"])
def test_what_was_put_is_read(made: tuple[Path, Model], derive: str) -> None:
    root, model = made
    before = files_below(root)
    with rocketstore.open(root, derive=derive) as store:
        assert_holds(store, model)
        assert store.verify().findings == []
    assert files_below(root) == before


def test_units_fill_files_one_after_the_other(pristine: tuple[Path, Model]) -> None:
    root, model = pristine
    content = b"".join(path.read_bytes() for path in queue_files(root))
    rows = [row for row in UNIT.struct.iter_unpack(content[: len(content) // 46 * 46]) if row[1]]
    assert [(row[4], row[5], row[0]) for row in rows] == [record[:3] for record in model.records]
    assert [row[3] for row in rows] == [record[4] for record in model.records]
    assert [int(path.name) for path in queue_files(root)] == [0, 460, 920]


def test_every_offset_is_answered_from_its_record_on(pristine: tuple[Path, Model]) -> None:
    root, model = pristine
    with rocketstore.open(root) as store:
        for offset in range(model.end):
            expected = model.from_offset(offset)[0]
            result = store.get_message("g", "BCQ", 0, offset, 1)
            assert [(m.queue_offset, m.physical_offset) for m in result.messages] == [expected]
            following = [base for base, _ in model.from_offset(offset)[1:2]] or [model.end]
            assert result.next_begin_offset == following[0]
        for offset, status, following in (
            (-1, "OFFSET_TOO_SMALL", 0),
            (model.end, "OFFSET_OVERFLOW_ONE", model.end),
            (model.end + 5, "OFFSET_OVERFLOW_BADLY", model.end),
        ):
            result = store.get_message("g", "BCQ", 0, offset)
            assert (result.status.name, result.next_begin_offset) == (status, following)
        assert store.get_message("g", "BCQ", 1, 0).status.name == "NO_MESSAGE_IN_QUEUE"


def test_counts_are_of_messages(pristine: tuple[Path, Model]) -> None:
    """A record that would exceed the count stays out, but for the first."""
    root, model = pristine
    with rocketstore.open(root, max_transfer_count_on_message_in_memory=20) as store:
        for most in range(1, 25):
            result = store.get_message("g", "BCQ", 0, 0, most)
            expected, held = [], 0
            for base, count, at, _, _ in model.records[:10]:  # the first file
                if expected and (held + count > most or held >= 20):
                    break
                expected.append((base, at))
                held += count
            assert [(m.queue_offset, m.physical_offset) for m in result.messages] == expected
            assert result.next_begin_offset == held


def test_limits_are_of_record_bytes(pristine: tuple[Path, Model]) -> None:
    root, _ = pristine
    with rocketstore.open(root) as store:
        first, second = store.get_message("g", "BCQ", 0, 0).messages[:2]
    for limit, count in ((1, 1), (first.store_size + second.store_size, 2)):
        with rocketstore.open(root, max_transfer_bytes_on_message_in_memory=limit) as store:
            assert len(store.get_message("g", "BCQ", 0, 0).messages) == count
    # Records count as being on disk when nothing of the machine's memory is taken for the log.
    with rocketstore.open(
        root, access_message_in_memory_max_ratio=0, max_transfer_count_on_message_in_disk=4
    ) as store:
        assert store.get_message("g", "BCQ", 0, 0).next_begin_offset == 4


@pytest.mark.parametrize("tags", ["t1", "t0 || t2", "*", "none"])
def test_tags_and_filters(pristine: tuple[Path, Model], tags: str) -> None:
    root, model = pristine
    wanted = set(tags.split(" || ")) if tags != "*" else {"t0", "t1", "t2"}
    expected = [(base, at) for base, _, at, tag, _ in model.records[:10] if tag in wanted][:1]

    class InPython:
        def is_matched_by_consume_queue(self, tags_code: int, ext: Any) -> bool:
            return True

        def is_matched_by_commit_log(self, message: rocketstore.StoredMessage) -> bool:
            return message.tags in wanted

    with rocketstore.open(root) as store:
        chosen: tuple[Any, ...] = (TagFilter(tags), InPython())
        results = [store.get_message("g", "BCQ", 0, 0, 1, filter=each) for each in chosen]
        assert results[0].status == results[1].status
        assert results[0].status.name == ("FOUND" if expected else "NO_MATCHED_MESSAGE")
        for result in results:
            found = [(m.queue_offset, m.physical_offset) for m in result.messages]
            assert found == expected
        offsets = store.filter_units("BCQ", 0, tags).tolist()
    assert offsets == [
        base + number
        for base, count, _, tag, _ in model.records
        if tag in wanted
        for number in range(count)
    ]


def test_examined_units_are_limited_in_messages(pristine: tuple[Path, Model]) -> None:
    """RocketMQ stops after 16,000 bytes of 20 a message, whatever a unit of this queue takes."""
    root, _ = pristine
    with rocketstore.open(root, max_filter_message_size=200) as store:
        result = store.get_message("g", "BCQ", 0, 0, 1, filter=TagFilter("none"))
    assert result.next_begin_offset == 10


def test_offset_by_time(pristine: tuple[Path, Model]) -> None:
    root, model = pristine
    times = [record[4] for record in model.records]
    assert len(set(times)) < len(times)  # some are stored at the same time
    starts = [times[0], times[10], times[20]]
    with rocketstore.open(root) as store:
        for moment in range(times[0] - 3, times[-1] + 4):
            chosen = max([number for number, time in enumerate(starts) if time <= moment] or [0])
            in_file = model.records[10 * chosen : 10 * chosen + 10]
            later = [base for base, _, _, _, time in in_file if time >= moment]
            expected = in_file[-1][0] if moment >= in_file[-1][4] else later[0]
            assert store.get_offset_in_queue_by_time("BCQ", 0, moment) == expected
            lower = [base for base, _, _, _, time in model.records if time >= moment]
            upper = [base + n - 1 for base, n, _, _, time in model.records if time <= moment]
            by_lower = store.get_offset_in_queue_by_time("BCQ", 0, moment, boundary="lower")
            by_upper = store.get_offset_in_queue_by_time("BCQ", 0, moment, boundary="upper")
            assert by_lower == (lower[0] if lower else model.end)
            assert by_upper == (upper[-1] if upper else 0)


# --- writing again ----------------------------------------------------------------------------


def test_writing_goes_on_where_it_ended(made: tuple[Path, Model]) -> None:
    root, known = made
    model = Model()
    model.records = list(known.records)
    for _ in range(3):
        # Nothing but the files says what type the topic has.
        with rocketstore.open(root, "r+") as store:
            for count in (2, 0, 11):
                model.put(store, count, "more")
            assert store.wait_dispatched(120)
            assert_holds(store, model)
    with rocketstore.open(root) as store:
        assert_holds(store, model)
        assert store.verify().findings == []


def test_a_killed_store_has_everything_again(tmp_path: Path) -> None:
    root, copy, model = tmp_path / "store", tmp_path / "copy", Model()
    with rocketstore.open(root, "x", **OPTIONS) as store:
        for number, count in enumerate(COUNTS):
            model.put(store, count, f"t{number % 3}")
            store.put("Plain", b"p")
            if number == 12:
                store.flush()
        assert store.wait_dispatched(120)
        shutil.copytree(root, copy)
    assert (copy / "abort").exists()
    for mode in ("r", "r+", "r"):
        with rocketstore.open(copy, mode) as store:
            assert_holds(store, model)
    assert verify_files(copy, MessageStoreConfig()).findings == []


@pytest.mark.parametrize("lost", ["folder", "first", "last", "plain", "all"])
def test_lost_files_come_back_byte_for_byte(made: tuple[Path, Model], lost: str) -> None:
    root, model = made
    before = files_below(root / "batchconsumequeue")
    if lost in ("folder", "all"):
        shutil.rmtree(root / "batchconsumequeue")
    if lost in ("plain", "all"):
        shutil.rmtree(root / "consumequeue")
    if lost == "all":
        shutil.rmtree(root / "index")
        (root / "rocketstore.state").unlink()
    if lost in ("first", "last"):
        queue_files(root)[0 if lost == "first" else -1].unlink()
    sizes = {name: OPTIONS[name] for name in OPTIONS if name != "topic_attributes"}
    with rocketstore.open(root, derive="full", **sizes) as store:
        assert_holds(store, model)
    with rocketstore.open(root, "r+", **sizes) as store:
        assert_holds(store, model)
        assert store.recovery_report.gaps == []
    assert files_below(root / "batchconsumequeue") == before


@pytest.mark.parametrize("field", [field.name for field in UNIT.fields[:6]])
def test_damaged_units_are_found_and_rebuilt(made: tuple[Path, Model], field: str) -> None:
    root, model = made
    before = files_below(root / "batchconsumequeue")
    path = queue_files(root)[1]
    at = 3 * UNIT.nbytes + UNIT.at(field)
    rewrite(path, at, b"\x81" + path.read_bytes()[at + 1 : at + 2])
    with rocketstore.open(root) as store:
        findings = store.verify().findings
    assert findings
    assert {finding.path for finding in findings} & {str(path)}
    (root / "rocketstore.state").unlink()
    with rocketstore.open(root, "r+") as store:
        assert store.max_offset_in_queue("BCQ", 0) == model.end
    if field in ("physical_offset", "size", "base_offset", "batch_size"):
        assert files_below(root / "batchconsumequeue") == before


def test_units_past_the_log_are_dropped(made: tuple[Path, Model]) -> None:
    root, model = made
    lost_from = model.records[-6][2]
    segments = sorted((root / "commitlog").iterdir())
    for path in segments:
        start = int(path.name)
        if start <= lost_from < start + SEGMENT:
            rewrite(path, lost_from - start, bytes(SEGMENT - (lost_from - start)))
        elif start > lost_from:
            path.unlink()
    (root / "rocketstore.state").unlink()
    (root / "abort").touch()
    known = Model()
    known.records = model.records[:-6]
    with rocketstore.open(root) as store:
        assert_holds(store, known)
    with rocketstore.open(root, "r+") as store:
        assert_holds(store, known)
        known.put(store, 4, "new")
        assert store.wait_dispatched(120)
    with rocketstore.open(root) as store:
        assert_holds(store, known)
        assert store.verify().findings == []


# --- which topics are of this type ------------------------------------------------------------


def write_topics(root: Path, **types: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {
        topic: {"topicName": topic, "attributes": {"queue.type": kind}}
        for topic, kind in types.items()
    }
    path = root / "config" / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": table}), encoding="utf-8")


def test_the_table_of_topics_decides(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_topics(root, BCQ="BatchCQ", Other="SimpleCQ")
    options = {**OPTIONS, "topic_attributes": {"Other": {"queue.type": "BatchCQ"}}}
    with rocketstore.open(root, "a", **options) as store:
        assert store.put("BCQ", b"single").ok  # no batch, and yet a batch queue
        refused = store.put("Other", b"", sys_flag=INNER, properties={"INNER_NUM": "2"})
        assert refused.status.name == "MESSAGE_ILLEGAL"
        assert store.put("Other", b"single").ok
    assert [path.name for path in (root / "batchconsumequeue").iterdir()] == ["BCQ"]
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["Other"]


def test_files_of_another_type_than_declared(made: tuple[Path, Model]) -> None:
    """A broker does not start on such a store; reading goes by what there is to read."""
    root, model = made
    write_topics(root, BCQ="SimpleCQ", Plain="BatchCQ")
    before = files_below(root)
    with pytest.raises(ConfigError, match="BCQ has the queue type SimpleCQ, but"):
        rocketstore.open(root, "r+")
    assert files_below(root) == before
    with rocketstore.open(root) as store:
        assert_holds(store, model)
        notes = " ".join(store.recovery_report.notes)
    assert "Plain has the queue type BatchCQ" in notes


def test_queues_of_both_types(made: tuple[Path, Model]) -> None:
    root, model = made
    shutil.copytree(root / "consumequeue" / "Plain", root / "consumequeue" / "BCQ")
    with pytest.raises(ConfigError, match="BCQ has queues of both types"):
        rocketstore.open(root, "r+", topic_attributes=OPTIONS["topic_attributes"])
    with rocketstore.open(root, topic_attributes=OPTIONS["topic_attributes"]) as store:
        assert_holds(store, model)
        assert any("consumequeue/BCQ/0" in path for path in store.recovery_report.skipped)


@pytest.mark.parametrize("size", [0, 45, 47, 460 + 20, 2**31])
def test_file_sizes_that_cannot_be(tmp_path: Path, size: int) -> None:
    with pytest.raises(ConfigError, match="mapper_file_size_batch_consume_queue"):
        rocketstore.open(tmp_path / "store", "x", mapper_file_size_batch_consume_queue=size)
    assert not (tmp_path / "store").exists()


def test_a_file_size_that_contradicts_the_files(made: tuple[Path, Model]) -> None:
    with pytest.raises(ConfigError, match="have 460 bytes"):
        rocketstore.open(made[0], mapper_file_size_batch_consume_queue=920)


def test_arrays_of_queues_that_hold_nothing(made: tuple[Path, Model]) -> None:
    with rocketstore.open(made[0]) as store:
        assert len(store.queue_view("BCQ", 7)) == 0
        assert store.queue_view("BCQ", 0).dtype.names == UNIT.dtype.names


# --- records whose numbers are not right ------------------------------------------------------


def change_property(root: Path, old: bytes, new: bytes) -> int:
    """Replace text in the log, which no CRC covers; return the log offset of its place."""
    assert len(old) == len(new)
    for path in sorted((root / "commitlog").iterdir()):
        at = path.read_bytes().find(old)
        if at >= 0:
            rewrite(path, at, new)
            return int(path.name) + at
    raise LookupError(old)


@pytest.mark.parametrize("base", ["2x", "-9", "++"])
def test_a_batch_without_a_number_is_one_message(made: tuple[Path, Model], base: str) -> None:
    """It was in no queue, though its own queue offset is right."""
    root, model = made
    place = change_property(root, b"INNER_BASE\x0159\x02", b"INNER_BASE\x01%b\x02" % base.encode())
    shutil.rmtree(root / "batchconsumequeue")
    with rocketstore.open(root, "r+", mapper_file_size_batch_consume_queue=460) as store:
        assert store.recovery_report.refused == []
        (note,) = [note for note in store.recovery_report.notes if "INNER_BASE is" in note]
        (offset,) = [at for start, at in model.from_offset(0) if start == 59]
        assert note.startswith(f"log offset {offset}: ")
        assert offset < place < offset + 400
        assert all_read(store) == model.from_offset(0)
        assert store.max_offset_in_queue("BCQ", 0) == model.end
    with rocketstore.open(root) as store:
        assert any("invalid numbers" in finding.reason for finding in store.verify().findings)


@pytest.mark.parametrize("derive", ["full", "r+"])
def test_a_batch_that_claims_too_high_an_offset_is_in_no_queue(
    made: tuple[Path, Model], derive: str
) -> None:
    """If it were trusted, it would hide every record after it."""
    root, model = made
    change_property(root, b"KEYS\x01k11\x02INNER_BASE\x0159\x02", b"INNER_BASE\x0199999999999\x02")
    shutil.rmtree(root / "batchconsumequeue")
    options = {"derive": derive} if derive == "full" else {"mode": derive}
    with rocketstore.open(root, **options) as store:
        assert store.max_offset_in_queue("BCQ", 0) == model.end


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, (7, 1)),
        ({"INNER_NUM": "5"}, (7, 1)),
        ({"INNER_BASE": "5"}, (7, 1)),
        ({"INNER_NUM": "5", "INNER_BASE": "9"}, (9, 5)),
        ({"INNER_NUM": "+5", "INNER_BASE": "009"}, (9, 5)),
        ({"INNER_NUM": "32767", "INNER_BASE": str(2**63 - 1 - 32767)}, (2**63 - 32768, 32767)),
        ({"INNER_NUM": "32768", "INNER_BASE": "9"}, (7, 1)),
        ({"INNER_NUM": "0", "INNER_BASE": "9"}, (7, 1)),
        ({"INNER_NUM": "-1", "INNER_BASE": "9"}, (7, 1)),
        ({"INNER_NUM": "1", "INNER_BASE": "-9"}, (7, 1)),
        ({"INNER_NUM": "2", "INNER_BASE": str(2**63 - 2)}, (7, 1)),
        ({"INNER_NUM": "x", "INNER_BASE": "9"}, (7, 1)),
        ({"INNER_NUM": "1", "INNER_BASE": "1" * 100_000}, (7, 1)),
    ],
)
def test_the_unit_of_a_record(properties: dict[str, str], expected: tuple[int, int]) -> None:
    message: Any = SimpleNamespace(
        physical_offset=1, store_size=2, store_timestamp=3, queue_offset=7, properties=properties,
        sys_flag=INNER,
    )  # fmt: skip
    assert unit_of(message, 4) == (1, 2, 4, 3, *expected)
    message.sys_flag = 0
    assert unit_of(message, 4) == (1, 2, 4, 3, 7, 1)
    message.queue_offset, message.sys_flag = 2**63 - 1, 0
    assert unit_of(message, 4) is None


# --- other circumstances ----------------------------------------------------------------------


def test_no_room_for_a_batch_queue(tmp_path: Path) -> None:
    root, model = tmp_path / "store", Model()
    with rocketstore.open(root, "x", start=False, **OPTIONS) as store:
        for number in range(5):
            model.put(store, number, "t")
        assert store.wait_dispatched(120)
        with full_disk(no_room_for("batchconsumequeue")) as asked:
            for number in range(20):
                model.put(store, number, "t")
            with pytest.raises(StoreFullError):
                store.wait_dispatched()
            assert asked
            assert store.max_offset_in_queue("BCQ", 0) == model.records[9][0] + model.records[9][1]
        assert store.wait_dispatched(120)
        assert all_read(store) == model.from_offset(0)
    with rocketstore.open(root) as store:
        assert all_read(store) == model.from_offset(0)
        assert store.verify().findings == []


def test_refresh_and_descriptors(made: tuple[Path, Model]) -> None:
    root, known = made
    model = Model()
    model.records = list(known.records)

    def descriptors() -> list[str]:
        return sorted(os.listdir("/proc/self/fd"))

    with rocketstore.open(root) as store:
        assert_holds(store, known)
    before = descriptors()
    for derive in ("tail", "full", "none"):
        with rocketstore.open(root, derive=derive) as reader:
            with rocketstore.open(root, "r+") as writer:
                model.put(writer, 12, "later")
                assert writer.wait_dispatched(120)
            assert reader.max_offset_in_queue("BCQ", 0) == model.records[-1][0]
            reader.refresh()
            assert_holds(reader, model)
    assert descriptors() == before


REFERENCE_PROGRAM = """
import sys, rocketstore, rocketstore.kernels
assert rocketstore.kernels.name == "reference"
with rocketstore.open(sys.argv[1], "r+", mapper_file_size_batch_consume_queue=460) as store:
    assert store.verify().findings == []
    for offset in (0, 11, 58, 60, 90):
        result = store.get_message("g", "BCQ", 0, offset, 20)
        print(result.next_begin_offset, *[m.queue_offset for m in result.messages])
    print(store.get_offset_in_queue_by_time("BCQ", 0, int(sys.argv[2])))
"""


def test_both_kernel_bodies_make_and_answer_the_same(
    pristine: tuple[Path, Model], made: tuple[Path, Model]
) -> None:
    root, model = made
    shutil.rmtree(root / "batchconsumequeue")
    moment = model.records[15][4]
    done = run_python(REFERENCE_PROGRAM, str(root), str(moment), ROCKETSTORE_KERNELS="reference")
    assert done.returncode == 0, done.stderr
    expected = []
    with rocketstore.open(pristine[0]) as store:
        for offset in (0, 11, 58, 60, 90):
            result = store.get_message("g", "BCQ", 0, offset, 20)
            numbers = [result.next_begin_offset, *[m.queue_offset for m in result.messages]]
            expected.append(" ".join(map(str, numbers)))
        expected.append(str(store.get_offset_in_queue_by_time("BCQ", 0, moment)))
    assert done.stdout.split("\n")[:-1] == expected
    name = "batchconsumequeue"
    assert files_below(root / name) == files_below(pristine[0] / name)


@pytest.mark.parametrize(
    ("declared", "simple", "batch", "folders", "chosen", "wrong"),
    [
        ("", "", "", "", False, 0),
        ("BatchCQ", "", "", "", True, 0),
        ("BatchCQ", "", "T", "T", True, 0),
        ("BatchCQ", "T", "", "", False, 1),
        ("BatchCQ", "T", "T", "T", True, 1),
        ("SimpleCQ", "", "", "", False, 0),
        ("SimpleCQ", "T", "", "T", False, 0),
        ("SimpleCQ", "", "T", "T", True, 1),
        ("SimpleCQ", "T", "T", "T", False, 1),
        ("SimpleCQ", "", "", "T", False, 0),
        ("Unheard", "", "", "T", False, 0),
        ("", "T", "", "", False, 0),
        ("", "T", "", "T", False, 0),
        ("", "", "T", "T", True, 0),
        ("", "", "", "T", True, 0),
        ("", "T", "T", "T", False, 1),
    ],
)
def test_what_decides_a_topics_type(
    declared: str, simple: str, batch: str, folders: str, chosen: bool, wrong: int
) -> None:
    """Files, then the table, then an empty folder; files that contradict the table are reported."""
    types = queue_types({"T": declared} if declared else {}, set(simple), set(batch), set(folders))
    assert types.batch == ({"T"} if chosen else set())
    assert len(types.contradictions) == wrong
    if wrong:
        with pytest.raises(ConfigError, match="topic T has"):
            refuse_contradictions(types)


def test_an_empty_folder_keeps_the_type(made: tuple[Path, Model]) -> None:
    root, model = made
    for path in queue_files(root):
        path.unlink()
    with rocketstore.open(root, "r+", mapper_file_size_batch_consume_queue=460) as store:
        assert all_read(store) == model.from_offset(0)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "batchconsumequeue" / "BCQ" / "0")
    (root / "batchconsumequeue" / "BCQ" / "0").mkdir()
    shutil.rmtree(root / "index")
    for name in ("rocketstore.state", "checkpoint"):  # what shows that there was a log
        (root / name).unlink()
    with rocketstore.open(root, "r+") as store:
        assert store.put("BCQ", b"single").ok
    assert len(queue_files(root)) == 1


# --- harmed files -----------------------------------------------------------------------------


def zero_page(path: Path) -> None:
    rewrite(path, 0, bytes(path.stat().st_size))


def garbage(path: Path) -> None:
    rewrite(path, 0, random.Random(7).randbytes(path.stat().st_size))


def ones(path: Path) -> None:
    rewrite(path, 46, b"\xff" * 100)


def shorten(path: Path) -> None:
    os.truncate(path, 100)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    os.truncate(path, 461)


def swap_units(path: Path) -> None:
    content = path.read_bytes()
    rewrite(path, 0, content[46:92] + content[:46])


def repeat_unit(path: Path) -> None:
    rewrite(path, 46, path.read_bytes()[:46])


def rename(path: Path) -> None:
    path.rename(path.with_name(f"{int(path.name) + 46:020d}"))


def foreign(path: Path) -> None:
    (path.parent / "notes").write_text("no queue file")
    (path.parent.parent / "x").mkdir()


HARMS = [
    zero_page, garbage, ones, shorten, empty, lengthen, swap_units, repeat_unit, rename, foreign,
]  # fmt: skip


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("harm", HARMS)
def test_harmed_files(made: tuple[Path, Model], harm: Callable[[Path], None], number: int) -> None:
    """Reading shows no wrong message; a whole derivation and writing have all of them again."""
    root, model = made
    harm(queue_files(root)[number])
    before = files_below(root)
    right = set(model.from_offset(0))
    for derive in ("tail", "none"):
        with rocketstore.open(root, derive=derive) as store:
            for offset in range(0, store.max_offset_in_queue("BCQ", 0), 7):
                result = store.get_message("g", "BCQ", 0, offset)
                assert {(m.queue_offset, m.physical_offset) for m in result.messages} <= right
            assert store.verify().findings
            if derive == "tail":
                assert_holds(store, model)
    size = {"mapper_file_size_batch_consume_queue": 460}
    with rocketstore.open(root, derive="full", **size) as store:
        assert_holds(store, model)
    assert files_below(root) == before
    (root / "rocketstore.state").unlink()
    with rocketstore.open(root, "r+", **size) as store:
        assert_holds(store, model)
    with rocketstore.open(root) as store:
        assert_holds(store, model)
        # Nothing removes what is no file of a queue, and no broker starts with it.
        kinds = [one.kind for one in store.verify().findings]
        assert kinds == ["foreign-file"] * (harm is foreign)


@pytest.mark.parametrize("lost", [(), ("batchconsumequeue",)], ids=["marks", "marks and queues"])
def test_inner_batches_show_that_a_store_is_of_5_x(tmp_path: Path, lost: tuple[str, ...]) -> None:
    # Without its state file a store of 5.1.4 was taken for one of 4.9, whose separators are the
    # same; the next inner batch then took one queue offset, however many messages it held.
    root = tmp_path / "store"
    options = {**OPTIONS, "broker_version": "5.1.4"}
    with rocketstore.open(root, "x", **options) as store:
        assert store.put("BCQ", b"1", sys_flag=INNER, properties={"INNER_NUM": "1"}).ok
    for name in (formats.STATE_FILE, formats.CHECKPOINT_FILE):
        (root / name).unlink()
    for name in lost:
        shutil.rmtree(root / name)
    del options["broker_version"]
    with rocketstore.open(root, "r+", **options) as store:
        assert store.broker_version == "5.1.4"
        assert store.put("BCQ", b"23", sys_flag=INNER, properties={"INNER_NUM": "2"}).ok
        assert store.wait_dispatched()
        assert store.max_offset_in_queue("BCQ", 0) == 3
