"""``clone``: exact and settled copies, beside a writer, after kills, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.errors import (
    MappedFileError,
    SourceChangedError,
    StoreFullError,
    StoreLockedError,
    UnsafePathError,
)
from rocketstore.moving import clone as module
from rocketstore.moving import copying
from rocketstore.moving.clone import WORK_SUFFIX, clone
from support.file_trees import tree_of
from support.kill_points import run_until_change
from support.looked_stores import SEGMENT, make_store, open_looked, plain_records

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="stores are only read there")

TESTS = Path(__file__).resolve().parents[2]
#: Every how many changes of the file system a process is killed; 0 is the short form: a few.
STRIDE = int(os.environ.get("ROCKETSTORE_MOVING_STRIDE", "0"))
KILLS = range(1, 5000, STRIDE) if STRIDE else (7, 45, 120, 5000)
#: Each store once in the short form, each way of copying at least once; all in the long one.
COPIES = [
    (name, how)
    for name, ways in {
        "broker-5.3.3": ("plain", "live", "at"),
        "crash-4.9.8": ("at", "plain", "live"),
        "expire-4.9.8": ("live", "plain", "at"),
        "lmq-5.3.3": ("at", "plain", "live"),
    }.items()
    for how in (ways if STRIDE else ways[:1])
]


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only processes die here: what was written stays, without waiting for a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def log_bytes(root: Path, start: int, stop: int) -> bytes:
    """The bytes of a log between two offsets, read without this library."""
    found = b""
    for path in sorted((root / "commitlog").iterdir()):
        base, content = int(path.name), path.read_bytes()
        if base < stop and base + len(content) > start:
            found += content[max(0, start - base) : stop - base]
    return found


def check_opens_cleanly(root: Path, end: int) -> None:
    """The store opens for writing without a repair, agrees with itself, and takes messages."""
    with rocketstore.open(root) as store:
        assert store.recovery_report.clean
        assert store.max_physical_offset == end
        assert store.verify().ok
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.clean
        assert not store.recovery_report.cut
        assert store.put("Orders", b"next", 0).physical_offset is not None
    with rocketstore.open(root) as store:
        assert store.verify().ok


def test_a_closed_store_is_copied_byte_for_byte(root: Path, tmp_path: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "foreign").symlink_to("../checkpoint")
    before = tree_of(root)
    report = clone(root, tmp_path / "copy")
    assert tree_of(root) == before
    assert tree_of(tmp_path / "copy") == before
    assert (tmp_path / "copy/config/foreign").readlink() == Path("../checkpoint")
    assert (report.ok, report.settled, report.resumed, report.state) == (True, False, False, "done")
    assert (report.log_start, report.log_end) == (0, rocketstore.open(root).max_physical_offset)
    assert not (tmp_path / f"copy{WORK_SUFFIX}").exists()
    check_opens_cleanly(tmp_path / "copy", report.log_end)


def test_holes_are_kept(root: Path, tmp_path: Path) -> None:
    with open(root / "commitlog" / "sparse", "wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"data")
    report = clone(root, tmp_path / "copy", reflink=False)
    made = (tmp_path / "copy/commitlog/sparse").stat()
    assert made.st_size == 64 << 20
    if (root / "commitlog/sparse").stat().st_blocks * 512 < 1 << 20:
        assert made.st_blocks * 512 < 1 << 20
        assert report.copied_nbytes < 4 << 20


@pytest.mark.parametrize(("name", "how"), COPIES)
def test_stores_of_brokers(name: str, how: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    before = tree_of(root)
    with rocketstore.open(root) as store:
        start, end = store.min_physical_offset, store.max_physical_offset
    at = (start + end) // 2 if how == "at" else None
    report = clone(root, tmp_path / "copy", live=how == "live", at=at)
    assert tree_of(root) == before
    assert report.ok, report.verify
    assert not report.rebuilt
    assert report.log_end == end if at is None else start < report.log_end <= at
    made = log_bytes(tmp_path / "copy", start, report.log_end)
    assert made == log_bytes(root, start, report.log_end)
    check_opens_cleanly(tmp_path / "copy", report.log_end)


def test_every_offset_ends_the_copy_with_a_whole_record(root: Path, tmp_path: Path) -> None:
    ends = [0]
    for one in plain_records(root):
        ends.append(one.offset + one.nbytes)
    for number, at in enumerate([1, ends[3], ends[3] - 1, SEGMENT, SEGMENT + 1, ends[-1]]):
        copy = tmp_path / f"copy-{number}"
        report = clone(root, copy, at=at)
        records = [one for one in plain_records(root) if one.offset + one.nbytes <= at]
        wanted = max((o.offset + o.nbytes for o in records if o.topic is not None), default=0)
        assert report.log_end == wanted, at
        assert [o for o in plain_records(copy) if o.topic] == [o for o in records if o.topic]
        assert report.ok
        shutil.rmtree(copy)
    for at in (ends[-1] + 1, -1):
        with pytest.raises(ValueError, match="the log has offsets"):
            clone(root, tmp_path / "none", at=at)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A process that writes a store: root, and the file of its acknowledgements."""
    root, answers = tmp_path / "live", tmp_path / "answers"
    source = Path(rocketstore.__file__).parents[1]
    with answers.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(TESTS / "support/expiring_writer.py"), str(root)],
            env={**os.environ, "PYTHONPATH": f"{source}:{TESTS}"},
            stdout=out,
        )
        try:
            while len(list((root / "commitlog").glob("*"))) < 8:
                assert process.poll() is None
            yield root, answers
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


def test_beside_a_writer(writer: tuple[Path, Path], tmp_path: Path) -> None:
    root, answers = writer
    with pytest.raises(StoreLockedError, match="--live"):
        clone(root, tmp_path / "copy")
    seen = []
    for number in range(2):
        copy = tmp_path / f"copy-{number}"
        for _ in range(20):
            try:
                report = clone(root, copy, live=True)
                break
            except SourceChangedError:
                continue  # the whole log expired meanwhile; the same call begins again
        else:
            raise AssertionError("never complete")
        assert report.ok, report.verify
        assert report.settled
        seen.append((copy, report))
    lines = answers.read_bytes().splitlines()[1:-1]
    rows = [[int(word) for word in line.split(b"\t")] for line in lines]
    for copy, report in seen:
        with rocketstore.open(copy) as store:
            wanted = [row for row in rows if report.log_start <= row[0] < report.log_end]
            found = [
                [one.physical_offset, one.queue_id, one.queue_offset, int(one.body.split(b".")[0])]
                for one in store.scan()
            ]
            assert found[: len(wanted)] == wanted
            assert store.max_physical_offset == report.log_end
        kept = sorted(path.name for path in (root / "commitlog").iterdir())
        start = max(report.log_start, int(kept[0]))
        part = log_bytes(copy, start, report.log_end)
        if start < report.log_end:
            # What expires between the two reads only shortens the source's beginning.
            assert part.endswith(log_bytes(root, start, report.log_end))
        check_opens_cleanly(copy, report.log_end)


@pytest.mark.parametrize("live", [False, True])
def test_a_kill_at_any_change_is_resumed(root: Path, tmp_path: Path, live: bool) -> None:
    before, copy = tree_of(root), tmp_path / "copy"
    with rocketstore.open(root) as store:
        end = store.max_physical_offset
    was_resumed = False
    for number in KILLS:
        was_killed = run_until_change(lambda: clone(root, copy, live=live), number)
        report = clone(root, copy, live=live) if was_killed or copy.exists() is False else None
        if report is not None:
            was_resumed |= report.resumed
            assert report.log_end == end
        if live:
            assert log_bytes(copy, 0, end) == log_bytes(root, 0, end)
        else:
            assert tree_of(copy) == before
        with rocketstore.open(copy) as store:
            assert store.recovery_report.clean
            assert store.verify().ok
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "store"]
        shutil.rmtree(copy)
        if not was_killed:
            assert number > 40
            assert was_resumed
            assert tree_of(root) == before
            return
    raise AssertionError("it never ended")


def test_a_full_disk_stops_it_and_the_same_call_goes_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [2]

    def copy_some(*_: object) -> int:
        full[0] -= 1
        if full[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(copying.Copier, "_copy_some", copy_some)
        patch.setattr(copying, "_compare", lambda *_, **__: None)
        patch.setattr(copying, "share_blocks", lambda *_: False)
        with pytest.raises(StoreFullError, match="no room"):
            clone(root, tmp_path / "copy")
    shutil.rmtree(tmp_path / f"copy{WORK_SUFFIX}/store/commitlog")
    journal = tmp_path / f"copy{WORK_SUFFIX}/journal.ndjson"
    lines = [line for line in journal.read_text().splitlines() if '"kind":"file"' not in line]
    journal.write_text("".join(f"{line}\n" for line in lines))  # those copies were pretended
    assert clone(root, tmp_path / "copy").resumed
    assert tree_of(tmp_path / "copy") == tree_of(root)


def test_a_source_that_changes_is_told(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = module._Clone._copy_other
    done = []

    def copy_other(self: module._Clone, *arguments: object, **options: bool) -> None:
        if not done:
            done.append(1)
            with open_looked(root, "r+") as store:
                store.put("Orders", b"meanwhile", 0)
        copy(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Clone, "_copy_other", copy_other)
    with pytest.raises(SourceChangedError, match="changed while it was copied"):
        clone(root, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    report = clone(root, tmp_path / "copy")
    assert "begun again" in report.notes[0]
    assert tree_of(tmp_path / "copy") == tree_of(root)


def test_a_damaged_store_is_copied_as_it_is(root: Path, tmp_path: Path) -> None:
    with (root / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(2000)
        file.write(bytes(3000))
    (root / "abort").touch()
    before = tree_of(root)
    report = clone(root, tmp_path / "copy")
    assert not report.ok
    assert tree_of(tmp_path / "copy") == before
    report = clone(root, tmp_path / "live", live=True)
    assert not report.ok
    assert not report.settled
    assert "damaged" in report.notes[-1]
    assert log_bytes(tmp_path / "live", 0, report.log_end) == log_bytes(root, 0, report.log_end)


def test_what_is_refused_changes_nothing(root: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "there/file", "link"):
        with pytest.raises(FileExistsError):
            clone(root, tmp_path / name)
    for place in (root, root / "inside", root / "config" / ".." / "inside"):
        with pytest.raises((MappedFileError, FileNotFoundError)):
            clone(root, place)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        clone(root, tmp_path / "missing" / "copy")
    with pytest.raises(FileNotFoundError):
        clone(tmp_path / "missing", tmp_path / "copy")
    with pytest.raises(FileNotFoundError, match="not a store"):
        clone(tmp_path / "there", tmp_path / "copy")
    os.mkfifo(root / "config-fifo")
    with pytest.raises(MappedFileError, match="FIFO"):
        clone(root, tmp_path / "copy")
    (root / "config-fifo").unlink()
    (root / "out").symlink_to(tmp_path / "there")
    with pytest.raises(UnsafePathError):
        clone(root, tmp_path / "copy")
    (root / "out").unlink()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["link", "store", "there"]
    assert clone(root, tmp_path / "copy").ok


def test_an_unfinished_copy_of_another_call_is_kept(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert run_until_change(lambda: clone(root, copy), 30)
    work = tmp_path / f"copy{WORK_SUFFIX}"
    assert "begun" in (work / "journal.ndjson").read_text()
    with pytest.raises(FileExistsError, match="unfinished copy of another call"):
        clone(root, copy, live=True)
    assert clone(root, copy).resumed


def test_a_log_elsewhere_becomes_one_in_the_copy(root: Path, tmp_path: Path) -> None:
    os.rename(root / "commitlog", tmp_path / "log")
    report = clone(root, tmp_path / "copy", store_path_commit_log=str(tmp_path / "log"))
    assert report.ok
    check_opens_cleanly(tmp_path / "copy", report.log_end)


def test_an_empty_folder_is_taken(root: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    assert clone(root, tmp_path / "copy").ok


def test_findings_name_the_copy(tmp_path: Path) -> None:
    """Not the folder in which it was made, which is gone by then."""
    source = unpack("plain-5.3.3", tmp_path)
    os.truncate(max((source / "index").iterdir()), 2120)
    (source / "commitlog/00000000000000065536").unlink()
    found = clone(source, tmp_path / "copy").verify
    assert found is not None
    assert found.findings
    for one in found.findings:
        assert one.path.startswith(f"{tmp_path / 'copy'}/"), one.path
    for text in (*(one.reason for one in found.findings), *found.notes):
        assert WORK_SUFFIX not in text
