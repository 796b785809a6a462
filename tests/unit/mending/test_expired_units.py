"""Queue files that the log cannot rebuild: a broker reads them, and the queue's end stays."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore import formats
from support.seeded_ward import snapshot

_FILE_NBYTES = 200
_PER_FILE = 10
_UNIT = struct.Struct(">qiq")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store whose topic ``Old`` has expired: 15 messages, of which the second file holds five."""
    path = tmp_path / "store"
    with rocketstore.open(
        path, "x", mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=_FILE_NBYTES
    ) as store:
        for _ in range(15):
            assert store.put("Old", b"x" * 100).ok
        for _ in range(40):
            assert store.put("New", b"x" * 100, 1).ok
    segments = sorted((path / "commitlog").iterdir())
    for one in segments[:-1]:
        one.unlink()
    (path / "rocketstore.state").unlink()
    (path / "consumequeue/Old/0" / f"{0:020}").unlink()
    assert rocketstore.doctor(path, level="deep").state == "well"
    return path


def _queue(root: Path) -> Path:
    return root / "consumequeue/Old/0"


def _file(root: Path) -> Path:
    return _queue(root) / formats.offset_to_file_name(_FILE_NBYTES)


def _units(path: Path) -> list[tuple[int, int, int]]:
    return list(_UNIT.iter_unpack(path.read_bytes()))


def _write(path: Path, at: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


def _zeros(root: Path) -> int:
    _file(root).write_bytes(bytes(_FILE_NBYTES))
    return 11  # the file was created for one message at least


def _empty(root: Path) -> int:
    _file(root).write_bytes(b"")
    return 11


def _short(root: Path) -> int:
    os.truncate(_file(root), 50)
    return 12


def _long(root: Path) -> int:
    os.truncate(_file(root), 220)
    return 15


def _hole(root: Path) -> int:
    _write(_file(root), 20, bytes(20))
    return 15


def _first_zero(root: Path) -> int:
    _write(_file(root), 0, bytes(20))
    return 15


def _noise(root: Path) -> int:
    _write(_file(root), 40, b"\xff" * 20)
    return 15


def _beyond(root: Path) -> int:
    _write(_file(root), 80, _UNIT.pack(1 << 40, 200, 0))
    return 14


def _blank_next(root: Path) -> int:
    _file(root).with_name(formats.offset_to_file_name(2 * _FILE_NBYTES)).write_bytes(
        bytes(_FILE_NBYTES)
    )
    return 15


def _blank_before(root: Path) -> int:
    _queue(root).joinpath(f"{0:020}").write_bytes(bytes(_FILE_NBYTES))
    return 15


def _short_before(root: Path) -> int:
    _queue(root).joinpath(f"{0:020}").write_bytes(bytes(20))
    return 15


def _gap(root: Path) -> int:
    content = _file(root).read_bytes()
    later = formats.offset_to_file_name(3 * _FILE_NBYTES)
    _file(root).with_name(later).write_bytes(content)
    return 35


@pytest.mark.parametrize(
    "damage",
    [_zeros, _empty, _short, _long, _hole, _first_zero, _noise, _beyond, _blank_next,
     _blank_before, _short_before, _gap],
)  # fmt: skip
def test_a_queue_of_expired_messages_keeps_its_end(
    damage: Callable[[Path], int], root: Path
) -> None:
    end = damage(root)
    before = snapshot(root)
    plan = rocketstore.plan(root)
    report = rocketstore.repair(root, plan)
    assert report.verdict is not None
    assert report.verdict.state == "well"
    files = sorted(_queue(root).iterdir())
    units = [unit for file in files for unit in _units(file)]
    first = int(files[0].name) // 20
    assert all(size > 0 for _, size, _ in units[: end - first])
    assert not any(any(unit) for unit in units[end - first :])
    # A record that ends before the log: a filler would hide every later message.
    assert units[end - first - 1][1] != formats.FILLER_UNIT_SIZE
    assert rocketstore.plan(root).empty
    assert report.undo is not None
    rocketstore.undo_repair(root, report.undo)
    assert snapshot(root) == before
    rocketstore.repair(root, rocketstore.plan(root))
    with rocketstore.open(root, "r+") as store:
        assert store.put("Old", b"next").queue_offset == end


def test_an_offset_of_a_group_shows_a_later_end(root: Path) -> None:
    _short(root)
    (root / "config").mkdir()
    (root / "config/consumerOffset.json").write_text('{"offsetTable":{"Old@g":{0:14}}}')
    rocketstore.repair(root, rocketstore.plan(root))
    with rocketstore.open(root, "r+") as store:
        assert store.put("Old", b"next").queue_offset == 14


def test_units_of_expired_messages_before_living_ones_are_read_by_a_broker(root: Path) -> None:
    queue = root / "consumequeue/New/1"
    with rocketstore.open(root, "r") as store:
        first = store.min_offset_in_queue("New", 1)
    start = first - first % _PER_FILE
    assert start < first
    file = queue / formats.offset_to_file_name(start * 20)
    _write(file, 0, bytes(20))
    assert "queue.unit.zeros" in rocketstore.doctor(root).counts
    verdict = rocketstore.repair(root, rocketstore.plan(root)).verdict
    assert verdict is not None
    assert verdict.state == "well"
    assert all(size > 0 for _, size, _ in _units(file)[: first - start])


def test_reindex_does_the_same(root: Path) -> None:
    end = _hole(root)
    assert rocketstore.reindex(root).files == [_file(root).relative_to(root).as_posix()]
    with rocketstore.open(root, "r") as store:
        assert store.max_offset_in_queue("Old", 0) == end
