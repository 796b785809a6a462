"""``delayOffset.json``: taken over from a broker, and handed back."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from crash.abandoning import abandon
from rocketstore.delay.offset_table import DelayOffsetTable, load_for_reading
from rocketstore.dialect import Dialect
from rocketstore.errors import CorruptionError, MappedFileError
from support.delayed_stores import DelayedStore, bodies


def write(root: Path, text: str) -> Path:
    path = root / "config" / "delayOffset.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(root: Path) -> DelayOffsetTable:
    table = DelayOffsetTable(root, lambda: 5)
    table.load()
    return table


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{1:8,2:5}}',
        '{"offsetTable":{"1":8,"2":5}}',
        '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":9},"offsetTable":{1:8,2:5\n}}',
        '{"offsetTable":{1:8,2:5,0:3,-1:2,3:-7}}',
    ],
)
def test_every_dialect_is_read(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    table = load(tmp_path)
    assert (table.offsets, table.log_offset, table.exists) == ({1: 8, 2: 5}, None, True)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
def test_what_is_written_follows_the_version(version: str, tmp_path: Path) -> None:
    write(tmp_path, '{"other":1,"dataVersion":{"counter":3,"timestamp":9},"offsetTable":{1:8}}')
    table = load(tmp_path)
    table.offsets = {2: 1, 1: 9}
    table.parked = {2: {0: "why"}}
    table.save(Dialect.for_version(version), 77, 199)
    document = json.loads((tmp_path / "config" / "delayOffset.json").read_text("utf-8"))
    assert document["offsetTable"] == {"1": 9, "2": 1}
    assert document["other"] == 1
    assert document["rocketstore"] == {"logOffset": 77, "parked": {"2": {"0": "why"}}}
    assert ("dataVersion" in document) == (version >= "5")
    again = load(tmp_path)
    assert (again.offsets, again.log_offset) == ({1: 9, 2: 1}, 77)
    assert again.parked == {2: {0: "why"}}


def test_the_version_counts_every_two_hundred_offsets(tmp_path: Path) -> None:
    table = load(tmp_path)
    assert not table.exists
    counters = []
    for updates in (199, 1, 400):
        table.save(Dialect.for_version("5.5.0"), None, updates)
        document = json.loads((tmp_path / "config" / "delayOffset.json").read_text("utf-8"))
        assert "rocketstore" not in document
        counters.append(document["dataVersion"]["counter"])
    assert counters == [0, 1, 3]


@pytest.mark.parametrize(
    "own",
    [1, [], {"logOffset": "7"}, {"logOffset": -1}, {"logOffset": True}, {"parked": {"x": {"1": 2}}},
     {"parked": [1]}, {"parked": {"1": {"a": "b"}}}, {"parked": {"1": {"9" * 5000: "b"}}},
     {"parked": {"\u0663": {"1": "b"}}}],
)  # fmt: skip
def test_a_strange_member_is_ignored(own: Any, tmp_path: Path) -> None:
    write(tmp_path, json.dumps({"offsetTable": {"1": 2}, "rocketstore": own}))
    table = load(tmp_path)
    assert (table.offsets, table.log_offset, table.parked) == ({1: 2}, None, {})


def test_the_backup_is_read_if_the_file_is_corrupt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "{nonsense")
    path.with_name("delayOffset.json.bak").write_text('{"offsetTable":{1:4}}')
    with caplog.at_level(logging.WARNING, "rocketstore"):
        assert load(tmp_path).offsets == {1: 4}
    assert ".bak is read instead" in caplog.text


def test_a_corrupt_table_delivers_nothing(tmp_path: Path) -> None:
    """With an empty table, everything in the log would be delivered again."""
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
        delayed.clock.now += 1000
        store.deliver_due()
    path = write(delayed.root, "{nonsense")
    path.with_name("delayOffset.json.bak").unlink(missing_ok=True)
    with delayed.open() as store:
        with pytest.raises(CorruptionError, match="delayOffset"):
            store.deliver_due()
        assert any("delayOffset" in note for note in store.delays().notes)
        assert bodies(store) == [b"x"]
    with pytest.raises(CorruptionError, match="delayOffset"):
        delayed.open(schedule_message_enable=True)
    table, problem = load_for_reading(delayed.root, lambda: 0)
    assert (table.offsets, problem is None) == ({}, False)


def test_a_broker_s_table_is_taken_over(tmp_path: Path) -> None:
    """It counts two of three deliveries; a broker that stopped cleanly is believed."""
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        for number in range(4):
            store.put("T", b"%d" % number, delay_level=2)
    write(delayed.root, '{"offsetTable":{2:3}}')
    with delayed.open() as store:
        delayed.clock.now += 5000
        assert store.deliver_due() == 1
        assert bodies(store) == [b"3"]


def test_an_offset_past_its_queue_is_reported(tmp_path: Path) -> None:
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
    write(delayed.root, '{"offsetTable":{1:7}}')
    with delayed.read() as reader:
        report = reader.delays()
        assert report.levels[0].offset == 1
        assert "the offset table says 7" in report.notes[0]
        assert any("delay level 1: offset 7" in f.reason for f in reader.verify().findings)


def test_an_offset_far_past_its_queue_counts_as_one_change(tmp_path: Path) -> None:
    """The version was counted up once for every 200 offsets between: that took for ever."""
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
    write(delayed.root, json.dumps({"offsetTable": {"1": 2**63 - 1}}))
    with delayed.open() as store:
        assert store.deliver_due() == 0
    table = load(delayed.root)
    assert (table.offsets, table._manager.data_version.counter) == ({1: 1}, 0)
    table.save(Dialect.for_version("5.5.0"), None, 2**62)
    assert load(delayed.root)._manager.data_version.counter == 2**62 // 200


def test_a_version_at_its_highest_number_stays_readable(tmp_path: Path) -> None:
    write(tmp_path, json.dumps({"offsetTable": {}, "dataVersion": {"counter": 2**63 - 1}}))
    load(tmp_path).save(Dialect.for_version("5.5.0"), None, 400)
    assert load(tmp_path)._manager.data_version.counter == -(2**63) + 1


@pytest.mark.parametrize("is_queue_lost", [False, True])
def test_deliveries_that_the_log_lost_are_made_again(is_queue_lost: bool, tmp_path: Path) -> None:
    """The table counts them; the log, truncated by a power failure, lacks the last three of six."""
    delayed = DelayedStore(tmp_path / "s")
    store = delayed.open()
    for number in range(10):
        store.put("T", b"%d" % number, delay_level=1 + number % 2)
    delayed.clock.now += 5000
    store.deliver_due(max_count=6)
    service = store.delay_service
    assert service is not None
    service.persist()
    end = [message.physical_offset for message in store.scan()][-3]
    abandon(store)
    with open(delayed.root / "commitlog" / f"{0:020}", "r+b") as file:
        file.seek(end)
        file.write(bytes(16384 - end))
    if is_queue_lost:
        shutil.rmtree(delayed.root / "consumequeue")
    with delayed.read() as reader:
        report = reader.delays()
        assert report.pending == 7
        assert "waits again" in report.notes[0]
    with delayed.open() as store:
        assert store.deliver_due() == 7
        assert sorted(bodies(store)) == [b"%d" % number for number in range(10)]
    with delayed.open() as store:
        assert (store.deliver_due(), store.delays().notes) == (0, ())


def test_a_reader_whose_view_is_older_than_the_table_reads_again(tmp_path: Path) -> None:
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
        store.wait_dispatched()
        with delayed.read() as reader:
            assert reader.delays().pending == 1
            for _ in range(3):
                store.put("T", b"y", delay_level=1)
            delayed.clock.now += 1000
            store.deliver_due(max_count=2)
            service = store.delay_service
            assert service is not None
            service.persist()
            report = reader.delays()
            assert (report.pending, report.notes) == (2, ())


@pytest.mark.parametrize("kind", ["folder", "fifo", "loop", "file"])
def test_a_table_of_another_kind_is_noted_and_refused(kind: str, tmp_path: Path) -> None:
    """``file``: the folder of the table is a file. Nothing is delivered that cannot be noted."""
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
    delayed.clock.now += 1000
    path = write(delayed.root, "")
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.parent.rmdir()
        path.parent.write_bytes(b"")
    named = path.parent if kind == "file" else path
    with delayed.read() as reader:
        report = reader.delays()
        assert report.pending == 1
        assert report.notes[0].startswith(f"{named} is ")
    with delayed.open() as store:
        with pytest.raises(MappedFileError, match=f"{named} is "):
            store.deliver_due()
        assert bodies(store) == []


def test_a_table_that_cannot_be_opened_is_a_problem_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "config").symlink_to("config")
    table, problem = load_for_reading(tmp_path, lambda: 0)
    assert problem is not None
    assert str(tmp_path / "config") in problem
    assert not table.offsets
