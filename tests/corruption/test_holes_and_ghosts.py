"""Holes of zeros inside a segment, and ghosts: never delivered, never taken for the log's end.

5.5.0 leaves both: its accelerated recovery continues at a checkpoint past bytes that the system
lost, and with ``writeWithoutMmap`` stale records follow new ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from support.directory import files_below

SEGMENT_NBYTES = 16 * 1024


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, int]]]:
    """A store of several segments, and (offset, size) of each record."""
    root = tmp_path_factory.mktemp("written") / "store"
    places = []
    options = {"mapped_file_size_commit_log": SEGMENT_NBYTES, "broker_version": "5.5.0"}
    with rocketstore.open(root, "x", **options) as store:
        for number in range(150):
            result = store.put("Topic", b"%d" % number * 60, number % 2, "tag", f"key{number}")
            assert result.physical_offset is not None
            places.append((result.physical_offset, result.nbytes))
    return root, places


def zeroed(
    written: tuple[Path, list[tuple[int, int]]], tmp_path: Path, first: int, count: int
) -> tuple[Path, list[int]]:
    """A copy with whole records zeroed; numbers of those that are left."""
    source, places = written
    root = tmp_path / "store"
    shutil.copytree(source, root)
    for offset, size in places[first : first + count]:
        path = root / "commitlog" / f"{offset - offset % SEGMENT_NBYTES:020d}"
        with path.open("r+b") as file:
            file.seek(offset % SEGMENT_NBYTES)
            file.write(bytes(size))
    return root, [n for n in range(len(places)) if not first <= n < first + count]


def body(number: int) -> bytes:
    return b"%d" % number * 60


HOLES = [(5, 1), (5, 7), (0, 3), (40, 30), (100, 49)]


@pytest.mark.parametrize("keeps_state", [True, False], ids=["state", "foreign"])
@pytest.mark.parametrize(("first", "count"), HOLES)
def test_records_after_a_hole_are_served(
    written: tuple[Path, list[tuple[int, int]]],
    tmp_path: Path,
    first: int,
    count: int,
    keeps_state: bool,
) -> None:
    root, left = zeroed(written, tmp_path, first, count)
    if not keeps_state:
        (root / "rocketstore.state").unlink()
    before = files_below(root)
    for derive in ("tail", "full"):
        with rocketstore.open(root, "r", derive=derive) as store:
            found = [message.body for message in store.scan(on_corruption="skip")]
            assert found == [body(number) for number in left]
            assert store.max_physical_offset == sum(written[1][-1])
            for number in (left[0], left[-1]):
                hits = store.find(topic="Topic", key=f"key{number}")
                assert [message.body for message in hits] == [body(number)]
                # Where the queue's head is in the hole, its numbers stay what they are.
                result = store.get_message("g", "Topic", number % 2, number // 2, 1)
                assert [message.body for message in result.messages] == [body(number)]
    assert files_below(root) == before


@pytest.mark.parametrize("keeps_state", [True, False], ids=["state", "foreign"])
@pytest.mark.parametrize(("first", "count"), HOLES)
def test_a_hole_is_not_the_end_for_a_writer_either(
    written: tuple[Path, list[tuple[int, int]]],
    tmp_path: Path,
    first: int,
    count: int,
    keeps_state: bool,
) -> None:
    """Durable messages are lost there: the user must decide, and nothing is truncated."""
    root, left = zeroed(written, tmp_path, first, count)
    if not keeps_state:
        (root / "rocketstore.state").unlink()
    before = files_below(root)
    with pytest.raises(rocketstore.CorruptionError) as caught:
        rocketstore.open(root, "r+")
    assert str(written[1][first][0]) in str(caught.value)
    after = files_below(root)
    assert {name: after[name] for name in before} == before
    with rocketstore.open(root, "r") as store:
        report = store.verify()
        assert not report.ok
        assert report.records == len(left)
        assert any(finding.offset == written[1][first][0] for finding in report.findings)


def test_ghosts_between_records_are_skipped(
    written: tuple[Path, list[tuple[int, int]]], tmp_path: Path
) -> None:
    """A stale copy of an earlier record lies between two records of other queues' order: the log
    continues after it, in both modes, and so do queues, keys and ``verify``."""
    source, places = written
    root = tmp_path / "store"
    shutil.copytree(source, root)
    for name in ("rocketstore.state", "consumequeue", "index"):
        path = root / name
        path.unlink() if path.is_file() else shutil.rmtree(path)
    # Behind the last record: an earlier one as it was, then nothing.
    offset, size = places[3]
    end = sum(places[-1])
    segments = sorted((root / "commitlog").iterdir())
    content = (root / "commitlog" / segments[0].name).read_bytes()
    ghost = content[offset : offset + size]
    last = bytearray(segments[-1].read_bytes())
    place = end % SEGMENT_NBYTES
    last[place : place + size] = ghost
    segments[-1].write_bytes(last)
    with rocketstore.open(root, "r", derive="full") as store:
        assert [message.body for message in store.scan()] == [body(n) for n in range(150)]
        assert store.max_physical_offset in (end, end + size)
        assert store.max_offset_in_queue("Topic", 0) == 75
    with rocketstore.open(root, "r+") as store:
        store.put("Topic", b"more", 0)
        store.wait_dispatched()
        assert [m.body for m in store.scan()] == [*(body(n) for n in range(150)), b"more"]
        assert store.max_offset_in_queue("Topic", 0) == 76
        assert store.verify().ok
