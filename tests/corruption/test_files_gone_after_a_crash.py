"""Log files that are gone after a crash, not torn: references to them are reported, kept or
refused."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import OPTIONS, SEGMENT, Clock, snapshot
from golden import golden_stores
from rocketstore import MappedFileError, MessageStoreConfig, formats
from rocketstore.directory.paths import StorePaths
from rocketstore.recovery.crash_losses import CrashLosses
from rocketstore.store.read_only import ReadOnlyParts
from support.command_line import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# All log files but the first were gone after a crash. ``put`` said nothing, gave out queue offsets
# once more, and deleted the queue and index files that still named the messages.

GONE = "missing since the crash"


def without_files(root: Path, kept: int) -> Path:
    """Delete all log files but the first ``kept``."""
    for path in sorted((root / "commitlog").iterdir())[kept:]:
        path.unlink()
    return root


def killed(folder: Path) -> Path:
    """What a killed process left, synced a moment before."""
    with rocketstore.open(folder / "live", "x", clock=Clock(), **OPTIONS) as store:
        for number in range(400):
            store.put("AB"[number % 2], b"%d" % number * 40, 0, "t", f"{number}")
        store.wait_dispatched(60)
        store.flush()
        return Path(shutil.copytree(folder / "live", folder / "store"))


def derived(root: Path) -> dict[str, bytes]:
    """Names and content of the files of queues and index."""
    folders = (root / "consumequeue", root / "index")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def queue_ends(root: Path) -> dict[tuple[str, int], int]:
    with rocketstore.open(root) as store:
        return {
            (topic, queue): store.max_offset_in_queue(topic, queue)
            for topic in store.topics()
            for queue in store.queues(topic)
        }


@pytest.mark.parametrize(
    ("name", "kept"), [("crash-4.9.8", 1), ("crash-5.3.3", 2), ("lag-4.9.8", 1), ("lag-5.3.3", 2)]
)
def test_what_is_truncated_is_reported_and_kept(tmp_path: Path, name: str, kept: int) -> None:
    root = without_files(golden_stores.unpack(name, tmp_path), kept)
    before = derived(root)
    reported = run("verify", root, "--json", code=1).stdout
    assert GONE in reported
    with rocketstore.open(root, "a") as store:
        (note,) = [note for note in store.recovery_report.notes if GONE in note]
        assert "messages past log offset" in note
    after, (copies,) = derived(root), (root / "quarantine").iterdir()
    kept_files = derived(copies)
    assert any(path.startswith("index") for path in kept_files)
    for path, content in before.items():
        if path in kept_files:
            assert kept_files[path] == content
        elif path.startswith("consumequeue"):
            assert after.get(path, b"").startswith(content.rstrip(b"\0"))
    with rocketstore.open(root, "a") as store:
        assert not [note for note in store.recovery_report.notes if GONE in note]
    assert len(list((root / "quarantine").iterdir())) == 1


@pytest.mark.parametrize("name", golden_stores.names("crash"))
def test_keys_alone_show_it(tmp_path: Path, name: str) -> None:
    """A broker that truncated its log leaves them."""
    root = without_files(golden_stores.unpack(name, tmp_path), 1)
    shutil.rmtree(root / "consumequeue")
    with rocketstore.open(root, "a") as store:
        assert [note for note in store.recovery_report.notes if GONE in note]
    assert list((root / "quarantine").glob("*/index/*"))


@pytest.mark.parametrize("own", [False, True])
def test_two_files_that_were_synced_are_missed(tmp_path: Path, own: bool) -> None:
    root = killed(tmp_path) if own else golden_stores.unpack("crash-5.3.3", tmp_path)
    ends = queue_ends(root)
    without_files(root, 1)
    before = snapshot(root)
    for mode in ("r+", "a"):
        with pytest.raises(MappedFileError, match=r"the segment is missing.*at least \d+ messages"):
            rocketstore.open(root, mode)
    with pytest.raises(MappedFileError, match="the segment is missing"):
        rocketstore.recover(root)
    assert "the segment is missing" in run("put", root, "A", "x", code=3).stderr
    assert "the segment is missing" in run("verify", root, "--json", code=1).stdout
    assert snapshot(root) == before
    report = rocketstore.salvage(root)
    assert report.placeholders
    with rocketstore.open(root, "a") as store:
        for (topic, queue), end in ends.items():
            assert store.put(topic, b"next", queue).queue_offset == end
        assert store.verify().ok


def test_one_file_may_not_have_been_synced_yet(tmp_path: Path) -> None:
    root = killed(tmp_path)
    files = sorted((root / "commitlog").iterdir())
    without_files(root, len(files) - 1)
    with rocketstore.open(root, "a") as store:
        assert store.put("A", b"next").ok


@pytest.mark.parametrize("name", golden_stores.names("crash", "lag"))
def test_an_ordinary_crash_loses_no_file(tmp_path: Path, name: str) -> None:
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root, "a") as store:
        assert not [note for note in store.recovery_report.notes if GONE in note]
    assert not (root / "quarantine").exists()


@pytest.mark.parametrize("place", [2**40, 2**62, 10 * 65536])
def test_one_wrong_unit_is_no_lost_file(tmp_path: Path, place: int) -> None:
    root = golden_stores.unpack("crash-4.9.8", tmp_path)
    unit = formats.CONSUME_QUEUE_UNIT
    path = max((root / "consumequeue" / "TopicA" / "0").iterdir())
    content = bytearray(path.read_bytes())
    count = -(-len(content.rstrip(b"\0")) // unit.nbytes)
    unit.struct.pack_into(content, (count - 1) * unit.nbytes, place, 99, 0)
    path.write_bytes(content)
    with rocketstore.open(root, "a") as store:
        assert not [note for note in store.recovery_report.notes if GONE in note]
    assert not (root / "quarantine").exists()


def test_a_file_that_was_made_meanwhile_is_not_missed(tmp_path: Path) -> None:
    root = killed(tmp_path)
    shutil.copytree(root / "commitlog", tmp_path / "log")
    without_files(root, 1)
    config = MessageStoreConfig()
    paths = StorePaths.of(root, config)
    parts = ReadOnlyParts(paths, config, derive="none", clock=int, progress=None)
    try:
        (root / "commitlog").joinpath(f"{SEGMENT:020}").write_bytes(b"\0" * SEGMENT)
        parts.report.damaged.clear()
        losses = CrashLosses(parts.log, parts.queues, parts.index)
        assert not losses.note(parts.facts, parts.report)
    finally:
        parts.close()
