"""The whole-record CRC property: every kind of put writes it, and it is checked when asked for."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, formats
from rocketstore.status import RecordFlags, RecordStatus
from support.appenders import Log, batch, message, stored
from support.kernel_bodies import NATIVE, Bodies

REQUIRE = int(RecordFlags.CHECK_BODY_CRC | RecordFlags.REQUIRE_PROPERTY_CRC)
LATE = {"enable_lmq": True, "enable_multi_dispatch": True}


def crc_of_tail(record: bytes) -> int | None:
    """The CRC that a record's tail says, None where there is no tail of the exact form."""
    tail = record[-formats.PROPERTY_CRC32_NBYTES :]
    name = formats.PROPERTY_CRC32.encode() + b"\x01"
    digits = tail[len(name) : -1]
    exact = tail.startswith(name) and tail.endswith(b"\x02") and digits.isdigit()
    return int(digits[::-1]) if exact else None


def records_of(log: Log) -> list[bytes]:
    """All records of a log in one segment."""
    segment, position, found = bytes(log.segments[0]), 0, []
    while position < log.appender.write_position:
        size = int.from_bytes(segment[position : position + 4], "big")
        found.append(segment[position : position + size])
        position += size
    return found


@pytest.mark.parametrize("version", ["5.2.0", "5.3.3", "5.5.0"])
def test_every_kind_of_put_writes_it(kernels: Bodies, version: str) -> None:
    log = Log(
        kernels,
        segment_nbytes=1 << 16,
        broker_version=version,
        append_property_crc=True,
        delay_ms=[1000],
        **LATE,
    )
    appender, bounds = log.appender, memoryview(b"\0\0\0\0\3\0\0\0\3\0\0\0").cast("i")
    appender.set_batch_topics(["BCQ"])
    stale = {"a": "b", "__CRC32#": "0123456789"}
    lights = {"INNER_MULTI_DISPATCH": "%LMQ%a,Other", "__CRC32#": "x"}
    appender.put("T", b"plain")
    appender.put("T", bytearray(b"buffer"), 0, "tag", ["k"], properties=stale)
    appender.put("T", b"delayed", delay_level=1, born_host="[2001:db8::1]:1")
    appender.put_message(message(body=b"m", properties=stale))
    appender.put_message(NATIVE.message.Message("T", b"exact", properties={"x": ""}))
    appender.put_messages(batch(message(properties={}), message(), properties={"C": "d"}))
    appender.put_many([message(body=bytes(n), properties=stale) for n in (0, 1, 70_00)])
    appender.put_columns("T", bounds, b"abc", tags="t")
    appender.put_columns("T", bounds, b"abc", properties=lights)
    appender.put("T", b"light", properties=lights)
    appender.put("BCQ", b"inner", sys_flag=0xC0, properties={"INNER_NUM": "4", **stale})
    appender.put("%RETRY%" + "r" * 200, b"version 2")
    records = records_of(log)
    assert len(records) == 17
    for record in records:
        covered = record[: -formats.PROPERTY_CRC32_NBYTES]
        assert crc_of_tail(record) == zlib.crc32(covered) & 0x7FFFFFFF
        assert record.count(b"__CRC32#") == 1
    assert NATIVE.message.check_record(
        log.segments[0], 0, len(log.segments[0]), 0, len(log.segments[0]), REQUIRE
    ) == (RecordStatus.OK, len(records[0]))


def test_without_the_switch_a_given_one_stays(kernels: Bodies) -> None:
    log = Log(kernels)
    log.appender.put("T", b"", properties={"__CRC32#": "stale", "a": "b"})
    assert stored(log).properties == {"__CRC32#": "stale", "a": "b"}


# --- stores -------------------------------------------------------------------------------------


def make(root: Path, **options: Any) -> None:
    with rocketstore.open(root, "x", broker_version="5.3.3", **options) as store:
        for number in range(5):
            assert store.put("T", b"%d" % number, 0, "tag", f"k{number}").ok
        assert store.put_message(Message("T", b"5")).ok


SMALL = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 400}


@pytest.mark.parametrize("version", ["4.9.8", "5.1.4"])
def test_a_store_of_a_version_without_it(tmp_path: Path, version: str) -> None:
    with pytest.raises(rocketstore.ConfigError, match=r"needs broker_version 5\.2\.0 or later"):
        rocketstore.open(
            tmp_path / "store", "x", broker_version=version, enabled_append_prop_crc=True
        )


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_store_that_has_it_can_be_forced(tmp_path: Path, mode: str) -> None:
    make(tmp_path / "store", enabled_append_prop_crc=True, **SMALL)
    switches = {"force_verify_prop_crc": True, "enabled_append_prop_crc": mode == "r+"}
    with rocketstore.open(tmp_path / "store", mode, **switches) as store:
        bodies = [m.body for m in store.get_message("g", "T", 0, 0).messages]
        assert bodies == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert store.verify().findings == []


def test_a_store_that_lacks_it_cannot_be_forced(tmp_path: Path) -> None:
    """RocketMQ then truncates its log to length 0; here it is damage below the durable offset."""
    root, both = tmp_path / "store", {"force_verify_prop_crc": True}
    make(root, **SMALL)
    before = (root / "commitlog/00000000000000000000").read_bytes()
    with pytest.raises(rocketstore.CorruptMessageError, match="BAD_PROPERTY_CRC"):
        rocketstore.open(root, "r+", enabled_append_prop_crc=True, **both)
    with (
        rocketstore.open(root, "r", derive="none", **both) as store,
        pytest.raises(rocketstore.CorruptMessageError, match="BAD_PROPERTY_CRC"),
    ):
        store.look_message_by_offset(0)
    assert (root / "commitlog/00000000000000000000").read_bytes() == before
    with rocketstore.open(root, "r+") as store:
        assert store.max_offset_in_queue("T", 0) == 6


@pytest.mark.parametrize("mode", ["x", "a", "r+"])
def test_forcing_without_writing_is_refused(tmp_path: Path, mode: str) -> None:
    """Records put then would be refused as damage when the store is opened again."""
    if mode == "r+":
        make(tmp_path / "store", **SMALL)
    before = sorted(path.name for path in (tmp_path / "store").glob("*"))
    with pytest.raises(rocketstore.ConfigError, match="set both"):
        rocketstore.open(tmp_path / "store", mode, force_verify_prop_crc=True)
    after = sorted(path.name for path in (tmp_path / "store").glob("*"))
    assert set(after) - set(before) <= {"lock"}


def test_forced_and_written(tmp_path: Path) -> None:
    root = tmp_path / "store"
    both = {"enabled_append_prop_crc": True, "force_verify_prop_crc": True}
    make(root, **both, **SMALL)
    with rocketstore.open(root, "r+", **both) as store:
        assert store.put("T", b"more").ok
        assert store.wait_dispatched(120)
        assert store.get_message("g", "T", 0, 6).messages[0].body == b"more"
