"""The last record of a log is damaged although it was durable. No good record follows it, so the
scan ended as if that record had never existed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import CorruptMessageError

COUNT = 20

Scan = Callable[..., Iterator[int]]


@pytest.fixture(params=["changed", "truncated"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store that was closed, whose last record was damaged then."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=1 << 16, start=False) as store:
        for _ in range(COUNT):
            last = store.put("T", b"x" * 100).physical_offset
    segment = root / "commitlog" / f"{0:020}"
    content = bytearray(segment.read_bytes())
    if request.param == "changed":
        content[last + 100] ^= 0xFF
    else:
        content[last + 20 :] = bytes(len(content) - last - 20)
    segment.write_bytes(content)
    return root


def by_rows(store: rocketstore.DefaultMessageStore, **options: Any) -> Iterator[int]:
    for message in store.scan(**options):
        yield message.physical_offset


def by_batches(store: rocketstore.DefaultMessageStore, **options: Any) -> Iterator[int]:
    for batch in store.scan_arrow("core", **options):
        yield from batch["physicalOffset"].to_pylist()


SCANS = pytest.mark.parametrize("scan", [by_rows, by_batches])


@SCANS
def test_a_scan_raises_after_the_good_records(root: Path, scan: Scan) -> None:
    with rocketstore.open(root) as store:
        (damage,) = store.recovery_report.damaged
        assert damage.start == store.max_physical_offset
        seen: list[int] = []
        with pytest.raises(CorruptMessageError, match=f"position {damage.start}"):
            seen.extend(scan(store))
        assert len(seen) == COUNT - 1


@SCANS
@pytest.mark.parametrize("word", ["skip", "stop"])
def test_a_scan_that_shall_not_fail_ends_there(root: Path, scan: Scan, word: str) -> None:
    with rocketstore.open(root) as store:
        assert len(list(scan(store, on_corruption=word))) == COUNT - 1


@SCANS
def test_a_scan_up_to_the_damage_meets_none(root: Path, scan: Scan) -> None:
    with rocketstore.open(root) as store:
        end = store.max_physical_offset
        assert len(list(scan(store, stop=end))) == COUNT - 1
        with pytest.raises(CorruptMessageError):
            list(scan(store, stop=end + 1))


def test_a_tail_raises_when_it_has_waited(root: Path) -> None:
    with rocketstore.open(root) as store, pytest.raises(CorruptMessageError):
        for _ in store.tail(start=0, interval_s=0.001, timeout_s=30):
            pass


@SCANS
def test_a_torn_end_is_no_damage(tmp_path: Path, scan: Scan) -> None:
    """What was never known to be on disk is no loss."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=1 << 16, start=False) as store:
        for _ in range(COUNT):
            last = store.put("T", b"x" * 100).physical_offset
    (root / "rocketstore.state").unlink()
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "abort").touch()
    segment = root / "commitlog" / f"{0:020}"
    content = bytearray(segment.read_bytes())
    content[last + 20 :] = bytes(len(content) - last - 20)
    segment.write_bytes(content)
    with rocketstore.open(root) as store:
        assert not store.recovery_report.damaged
        assert len(list(scan(store))) == COUNT - 1


def body_byte(record: bytearray) -> None:
    record[record.index(b"T", 60) - 2] ^= 0x41  # right before the topic and its length


def magic(record: bytearray) -> None:
    record[5] ^= 0x41


def small_size(record: bytearray) -> None:
    record[3] ^= 0x41


def huge_size(record: bytearray) -> None:
    record[0] ^= 0x41


def body_crc(record: bytearray) -> None:
    record[9] ^= 0x41


@pytest.mark.parametrize("damage", [body_byte, magic, small_size, huge_size, body_crc])
@pytest.mark.parametrize("name", ["ext-4.9.8", "plain-4.9.8", "plain-5.3.3", "inner-5.3.3"])
def test_a_brokers_last_record(
    name: str, damage: Callable[[bytearray], None], tmp_path: Path
) -> None:
    """The last record of ``ext-4.9.8`` is a rollback: no unit and no key names it, and the
    checkpoint's time of the queues is older, so recovery truncated it without a report."""
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        last = list(store.scan())[-1]
        start, nbytes = last.physical_offset, last.store_size
    segment = sorted((root / "commitlog").iterdir())[-1]
    size = segment.stat().st_size
    content = bytearray(segment.read_bytes())
    record = content[start % size : start % size + nbytes]
    damage(record)
    content[start % size : start % size + nbytes] = record
    segment.write_bytes(content)
    with rocketstore.open(root) as store:
        (found,) = store.recovery_report.damaged
        assert found.start == start
        with pytest.raises(CorruptMessageError):
            list(store.scan())
    with pytest.raises(CorruptMessageError):
        rocketstore.open(root, "r+")
    assert segment.read_bytes() == content
    rocketstore.salvage(root)
    with rocketstore.open(root, "r+") as store:
        assert store.put("T", b"next").physical_offset > start


@pytest.mark.parametrize("change", ["earlier time", "other place", "abort"])
def test_what_an_earlier_life_left_is_no_damage(change: str, tmp_path: Path) -> None:
    """A broker that starts after a crash truncates the log, but the bytes remain in the file."""
    root = golden_stores.unpack("ext-4.9.8", tmp_path)
    segment = sorted((root / "commitlog").iterdir())[-1]
    content = bytearray(segment.read_bytes())
    last = 24_699  # the rollback
    content[last + 100] ^= 0xFF  # of the body, after an IPv6 host
    if change == "earlier time":
        content[last + 68 : last + 76] = (1_700_000_000_000).to_bytes(8, "big")
    elif change == "other place":
        content[last + 28 : last + 36] = last.to_bytes(8, "big")
    else:
        (root / "abort").touch()
    segment.write_bytes(content)
    with rocketstore.open(root) as store:
        assert store.recovery_report.damaged == []
        assert len(list(store.scan())) == 117
