"""The last record of a log is damaged although it was durable: nothing lies behind it that a scan
could stumble over, so that it ended as if that record had never been."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptMessageError

COUNT = 20

Scan = Callable[..., Iterator[int]]


@pytest.fixture(params=["changed", "cut short"])
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
def test_a_scan_raises_behind_the_good_records(root: Path, scan: Scan) -> None:
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
