"""Invalid names and numbers in properties are reported, and everything good is served.

A light queue's bad name, a missing number in the list beside it, or a word in its place removed the
record from all its light queues without a report. A flag bit alone made a topic a batch topic. A
batch whose INNER_NUM was not a number was in no queue, and its neighbours counted as repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.status import MultiDispatch, RecordStatus
from rocketstore.testing import check_invariants
from support.kernel_bodies import Bodies
from support.record_factory import make_log, make_record

SEGMENT = 65536
OPTIONS: dict[str, Any] = {
    "broker_version": "5.3.3",
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 400,
    "mapper_file_size_batch_consume_queue": 460,
    "max_hash_slot_num": 10,
    "max_index_num": 100,
    "enable_lmq": True,
    "enable_multi_dispatch": True,
}
INNER = formats.SYS_FLAG_INNER_BATCH


def write_log(root: Path, records: list[dict[str, Any]]) -> None:
    """Write a store that has a log and nothing else."""
    (root / "commitlog").mkdir(parents=True)
    log = make_log(*({"topic": b"T", "queue_id": 0, "properties": b"", **one} for one in records))
    (root / "commitlog" / formats.offset_to_file_name(0)).write_bytes(log.ljust(SEGMENT, b"\0"))


def properties(**pairs: str) -> bytes:
    return "".join(f"{name}\1{value}\2" for name, value in pairs.items()).encode()


def multi(names: str, offsets: str) -> bytes:
    return properties(INNER_MULTI_DISPATCH=names, INNER_MULTI_QUEUE_OFFSET=offsets)


# --- light queues ---------------------------------------------------------------------------------

#: Names, numbers, the light queues that get the message, and what is reported.
ODD_NAMES = [
    ("%LMQ%../z,%LMQ%b", "0,0", ["b"], "'%LMQ%../z'"),
    ("%LMQ%a,%LMQ%b", "0", ["a"], "'%LMQ%b'"),
    ("%LMQ%a,%LMQ%b", "x,0", ["b"], "'%LMQ%a'"),
    ("%LMQ%a,%LMQ%b,%LMQ%c", "0,-1,0", ["a", "c"], "'%LMQ%b'"),
    ("%LMQ%a,%LMQ%b", "0,0,7", ["a", "b"], "3 items for 2 names"),
    ("%LMQ%a,%LMQ%b", "0,99999999999999999999", ["a"], "'%LMQ%b'"),
    ("%LMQ%a,%LMQ%b\3", "0,0", ["a"], "%LMQ%b"),
    ("%LMQ%a," + "%LMQ%" + "x" * 300, "0,0", ["a"], "%LMQ%xxx"),
    ("%LMQ%a,%LMQ%b", ",0", ["b"], "'%LMQ%a'"),
]


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(("names", "numbers", "served", "reported"), ODD_NAMES)
def test_good_names_are_served_and_odd_ones_reported(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    names: str,
    numbers: str,
    served: list[str],
    reported: str,
    mode: str,
) -> None:
    root = tmp_path / "s"
    odd = {"queue_offset": 0, "body": b"odd", "properties": multi(names, numbers)}
    write_log(root, [odd, {"queue_offset": 1, "properties": multi("%LMQ%good", "0")}])
    for _ in range(2):
        with caplog.at_level("WARNING"), rocketstore.open(root, mode, **OPTIONS) as store:
            assert store.topics() == sorted(["T", "%LMQ%good", *(f"%LMQ%{n}" for n in served)])
            for name in ["T", *(f"%LMQ%{n}" for n in served)]:
                assert store.get_message("g", name, 0, 0, 1).messages[0].body == b"odd"
            notes = [note for note in store.recovery_report.notes if reported in note]
            assert len(notes) == 1
            assert notes[0].startswith("log offset 0: INNER_MULTI_")
            verified = store.verify()
            assert [note for note in verified.notes if reported in note] == notes
            assert mode == "r" or verified.findings == []
    assert any(reported in record.getMessage() for record in caplog.records)


def test_names_that_this_version_ignores_are_not_reported(tmp_path: Path) -> None:
    root = tmp_path / "s"
    write_log(
        root,
        [
            {"queue_offset": 0, "properties": multi("Copies,%LMQ%a", "0,0")},
            {"queue_offset": 1, "properties": properties(INNER_MULTI_DISPATCH="%LMQ%a")},
            {"topic": b"%RETRY%g", "properties": multi("%LMQ%a", "x"), "queue_offset": 0},
        ],
    )
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert not any("INNER_MULTI" in note for note in store.recovery_report.notes)
        assert "Copies" not in store.topics()


@pytest.mark.parametrize(("names", "numbers", "served", "reported"), ODD_NAMES)
def test_both_kernels_count_odd_records_once(
    kernels: Bodies, names: str, numbers: str, served: list[str], reported: str
) -> None:
    log = make_log(
        *({"topic": b"T", "queue_id": 0, "queue_offset": n, "properties": multi(names, numbers)}
          for n in range(3))
    )  # fmt: skip
    dispatcher = kernels.reput.Dispatcher(index_enable=False, multi_dispatch=MultiDispatch.LIGHT)
    position, status, asked = 0, 0, []
    while True:
        position, status = dispatcher.dispatch(log, position, len(log), 0, len(log))
        if dispatcher.stalled is None:
            break
        topic, queue_id, offset = dispatcher.stalled
        asked.append(topic)
        dispatcher.set_queue(topic, queue_id, bytearray(400), 0, offset, -1)
    assert status == RecordStatus.END
    assert [name.decode() for name in asked] == ["T", *(f"%LMQ%{n}" for n in served)]
    third = len(log) // 3
    assert dispatcher.odd_names == 3
    assert dispatcher.take_odd_names() == [0, third, 2 * third]
    assert dispatcher.take_odd_names() == []
    dispatcher.close()


# --- batches --------------------------------------------------------------------------------------

FLAG_ALONE = {
    "no numbers": b"",
    "no INNER_BASE": properties(INNER_NUM="3"),
    "no INNER_NUM": properties(INNER_BASE="0"),
    "a dash": properties(INNER_BASE="0", INNER_NUM="-"),
    "letters": properties(INNER_BASE="x", INNER_NUM="3"),
    "zero": properties(INNER_BASE="0", INNER_NUM="0"),
    "too many": properties(INNER_BASE="0", INNER_NUM="32768"),
    "five nines": properties(INNER_BASE="0", INNER_NUM="99999"),
}


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("text", FLAG_ALONE.values(), ids=FLAG_ALONE.keys())
def test_a_flag_alone_makes_no_batch_topic(tmp_path: Path, text: bytes, mode: str) -> None:
    root = tmp_path / "s"
    first = {"queue_offset": 0, "sys_flag": INNER, "properties": text}
    write_log(root, [first, *({"queue_offset": n} for n in range(1, 5))])
    with rocketstore.open(root, mode, **OPTIONS) as store:
        assert store.max_offset_in_queue("T", 0) == 5
        found = store.get_message("g", "T", 0, 0, 32).messages
        assert [message.queue_offset for message in found] == list(range(5))
        assert sum("it has the batch flag" in note for note in store.recovery_report.notes) == 1
        assert store.recovery_report.refused == []
        assert mode == "r" or store.verify().findings == []
    assert not (root / "batchconsumequeue").exists()


@pytest.mark.parametrize("text", FLAG_ALONE.values(), ids=FLAG_ALONE.keys())
def test_the_job_makes_queues_of_a_log_with_a_wrong_flag(
    kernels: Bodies, tmp_path: Path, text: bytes
) -> None:
    log = make_record(topic=b"T", sys_flag=INNER, properties=text, queue_offset=0)
    batch = make_record(
        topic=b"T",
        sys_flag=INNER,
        properties=properties(INNER_BASE="0", INNER_NUM="32767"),
        physical_offset=len(log),
    )
    for content, offset in ((log, -1), (log + batch, len(log))):
        found = kernels.passes_queue_units.QueueUnitsPass()
        found.consume(content, 0, len(content), 0, len(content), len(content), 0)
        assert found.inner_batch_offset == offset


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("INNER_NUM", text) for text in ("-----", "99999", "abcde", "00000", "32768", "-0003")),
        *(("INNER_BASE", text) for text in ("-", "x", "+")),
    ],
)
def test_a_batch_without_numbers_is_one_message(
    tmp_path: Path, name: str, value: str, mode: str
) -> None:
    root = tmp_path / "s"
    records, base = [], 0
    for number, count in enumerate([3, 5, 2, 4]):
        pairs = {"INNER_BASE": str(base), "INNER_NUM": f"{count:05}"}
        if number == 1:
            pairs[name] = value
        flagged = {"sys_flag": INNER, "properties": properties(**pairs)}
        records.append({"queue_offset": base, "body": b"%d" % number, **flagged})
        base += count
    write_log(root, records)
    with rocketstore.open(root, mode, **OPTIONS) as store:
        assert store.max_offset_in_queue("T", 0) == 14
        for offset, body in [(0, b"0"), (2, b"0"), (3, b"1"), (8, b"2"), (10, b"3"), (13, b"3")]:
            assert store.get_message("g", "T", 0, offset, 1).messages[0].body == body
        report = store.recovery_report
        assert report.refused == report.repeated == []
        (note,) = [note for note in report.notes if "it has the batch flag" in note]
        assert name in note
        assert report.gaps == [("T", 0, 4, 8)]
    assert mode == "r" or (root / "batchconsumequeue" / "T").is_dir()


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("first", [7, 1000, 5000, 2**20, 2**40])
def test_a_batch_queue_that_begins_late(tmp_path: Path, first: int, mode: str) -> None:
    root = tmp_path / "s"
    write_log(root, [batch_at(first + 3 * number) for number in range(4)])
    with rocketstore.open(root, mode, **OPTIONS) as store:
        assert store.max_offset_in_queue("T", 0) == first + 12
        assert store.recovery_report.refused == []
        assert store.get_message("g", "T", 0, first + 4, 1).messages[0].queue_offset == first + 3
        assert mode == "r" or store.verify().findings == []


def batch_at(base: int) -> dict[str, Any]:
    pairs = properties(INNER_BASE=str(base), INNER_NUM="3")
    return {"queue_offset": base, "sys_flag": INNER, "properties": pairs}


@pytest.mark.parametrize("wrong", [0, 2, 4])
@pytest.mark.parametrize("claimed", [2**20, 2**40, 2**62])
def test_a_lone_base_is_refused(tmp_path: Path, claimed: int, wrong: int) -> None:
    root = tmp_path / "s"
    write_log(root, [batch_at(claimed if n == wrong else 3 * n) for n in range(5)])
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert len(store.recovery_report.refused) == 1
        for number in {*range(5)} - {wrong}:
            (message,) = store.get_message("g", "T", 0, 3 * number, 1).messages
            assert message.queue_offset == 3 * number


def test_a_broken_store_of_batches_is_opened_twice(tmp_path: Path) -> None:
    root = tmp_path / "s"
    write_log(root, [batch_at(0), {"queue_offset": 3, "sys_flag": INNER}, batch_at(4)])
    for lose in (lambda: None, lambda: shutil.rmtree(root / "batchconsumequeue")):
        forget: Callable[[], Any] = lose
        forget() if (root / "batchconsumequeue").exists() else None
        with rocketstore.open(root, "r+", **OPTIONS) as store:
            assert store.max_offset_in_queue("T", 0) == 7
            (finding,) = store.verify().findings
            assert "invalid numbers" in finding.reason


# --- the check of invariants ----------------------------------------------------------------------

#: Words that ``int`` refuses, or takes where RocketMQ's ``parseInt`` does not.
NO_NUMBERS = ["", "-", "abcde", "\N{SUPERSCRIPT TWO}", "1_0", "9" * 25]


@pytest.mark.parametrize("text", NO_NUMBERS, ids=ascii)
@pytest.mark.parametrize("name", ["INNER_NUM", "INNER_BASE", "DELAY", "INNER_MULTI_QUEUE_OFFSET"])
def test_invariants_are_checked_where_a_number_is_invalid(
    tmp_path: Path, name: str, text: str
) -> None:
    """``int`` of such a word ended the check with a ``ValueError``."""
    pairs = {
        "INNER_BASE": "3", "INNER_NUM": "3", "DELAY": "3",
        "INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0", name: text,
    }  # fmt: skip
    topic = formats.TOPIC_SCHEDULE.encode() if name == "DELAY" else b"T"
    flag = 0 if name == "DELAY" else INNER
    root = tmp_path / "s"
    odd = {"topic": topic, "sys_flag": flag, "properties": properties(**pairs)}
    following = {"DELAY": 3, "INNER_MULTI_QUEUE_OFFSET": 6}.get(name, 4)
    at = 0 if name == "DELAY" else 3
    records = [batch_at(0), {**odd, "queue_offset": at}, batch_at(following)]
    write_log(root, records)
    with rocketstore.open(root, "r+", **OPTIONS):
        pass
    report = check_invariants(root, config=rocketstore.MessageStoreConfig(**OPTIONS))
    assert [str(one) for one in report.violations] == []
