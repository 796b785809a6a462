"""Cleaning a store without opening it, as ``clean`` does if there is no space to open it.

On a full disk ``clean`` ended with "no room for …/abort … free space and try again", although it
was called to free space. Now it deletes whole files under the lock and writes nothing. Neither
state nor checkpoint may claim more than what is on disk, and no queue whose messages have all
expired may begin at 0 again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import MessageStoreConfig
from rocketstore.cleaning.plan import CleanReport
from rocketstore.directory.paths import StorePaths
from rocketstore.store.closed_cleaning import ClosedStore, clean_closed_store
from support.cleaned_stores import OPTIONS, check, killed_everywhere
from support.expired_stores import Was, look, make

VERSIONS = ("4.9.8", "5.5.0")
START = 1_709_294_400_000
NOW = START + 100 * 3_600_000
#: Every so many file operations one cleanup is killed; 1 tries all.
STEP = int(os.environ.get("ROCKETSTORE_CLEANUP_KILL_STEP", "20"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Was]]:
    """A store of each version, never changed, and what it holds."""
    folder = tmp_path_factory.mktemp("made")
    for version in VERSIONS:
        make(folder / version, version, clock=lambda: START)
    return {
        version: (folder / version, look(folder / version, version, OPTIONS))
        for version in VERSIONS
    }


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def clean(root: Path, now: int = NOW) -> CleanReport:
    config = MessageStoreConfig()
    return clean_closed_store(StorePaths.of(root, config), config, clock=lambda: now)


def change(root: Path, kind: str) -> None:
    """Make of a store that was closed in order one of another kind."""
    if "stateless" in kind:  # a broker's own
        (root / "rocketstore.state").unlink()
    if "aborted" in kind:
        (root / "abort").touch()
    if "lockless" in kind:
        (root / "lock").unlink()
    if "checkpointless" in kind:
        (root / "checkpoint").unlink()
    if "elsewhere" in kind:
        (root / "checkpoint").write_bytes((root / "checkpoint").read_bytes()[:48] + bytes(4048))


KINDS = (
    *("closed", "aborted", "stateless", "stateless aborted", "lockless", "checkpointless"),
    "elsewhere",
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_files_go_and_nothing_is_written(
    tmp_path: Path, made: dict[str, tuple[Path, Was]], version: str, kind: str
) -> None:
    pristine, was = made[version]
    root = shutil.copytree(pristine, tmp_path / "store")
    change(root, kind)
    before = contents(root)
    report = clean(root)
    after = contents(root)
    assert {name: before.get(name) for name in after} == after
    assert {file.kind for file in report.files} >= {"commitlog", "consumequeue", "index"}
    assert {str(Path(file.path).relative_to(root)) for file in report.files} == (
        before.keys() - after.keys()
    )
    assert len([name for name in after if name.startswith("commitlog")]) == 1
    assert check(root, was, NOW) == report.min_offset


@pytest.mark.parametrize("kind", ["stateless", "stateless aborted"])
def test_what_is_not_in_the_queues_stays(
    tmp_path: Path, made: dict[str, tuple[Path, Was]], kind: str
) -> None:
    """After a power failure one queue has its units and another does not: a queue of expired
    messages without units would begin at 0 again."""
    pristine, was = made["5.5.0"]
    root = shutil.copytree(pristine, tmp_path / "store")
    change(root, kind)
    for queue in (root / "consumequeue").glob("*/*"):
        for path in sorted(queue.iterdir())[1:]:
            path.unlink()
    shutil.rmtree(root / "batchconsumequeue")
    report = clean(root)
    assert report.min_offset == 0
    assert "is not in all queues and on disk yet" in report.kept
    first = report.min_offset
    assert all(int(path.name) >= first for path in (root / "commitlog").iterdir())
    assert check(root, was, NOW) == first


LOST = (
    *("consumequeue", "batchconsumequeue", "consumequeue/Early", "consumequeue/Single/0"),
    "batchconsumequeue/BCQ/1",
)


@pytest.mark.parametrize("kind", ["closed", "aborted"])
@pytest.mark.parametrize("lost", LOST)
def test_a_state_file_does_not_speak_for_queues_that_are_gone(
    tmp_path: Path, made: dict[str, tuple[Path, Was]], lost: str, kind: str
) -> None:
    """Only the log still shows a queue's offsets: cleaning keeps that part."""
    pristine, was = made["5.5.0"]
    root = shutil.copytree(pristine, tmp_path / "store")
    change(root, kind)
    shutil.rmtree(root / lost)
    report = clean(root)
    assert "is not in all queues and on disk yet" in report.kept
    assert check(root, was, NOW) == report.min_offset


@pytest.mark.parametrize("end", [0, 1, -1])
def test_a_queue_s_file_that_is_gone(
    tmp_path: Path, made: dict[str, tuple[Path, Was]], end: int
) -> None:
    pristine, was = made["5.5.0"]
    root = shutil.copytree(pristine, tmp_path / "store")
    sorted((root / "consumequeue" / "Early" / "0").iterdir())[end].unlink()
    report = clean(root)
    assert check(root, was, NOW) == report.min_offset


def test_what_was_put_after_the_state_file_does_not_speak_against_it(
    tmp_path: Path, made: dict[str, tuple[Path, Was]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash the queues go further than the state file says; no record needs a look."""
    root, crashed = tmp_path / "store", tmp_path / "crashed"
    shutil.copytree(made["5.5.0"][0], root)
    with rocketstore.open(root, "r+", clock=lambda: START) as store:
        for topic in ("Early", "New"):
            assert store.put(topic, b"x" * 90).ok
        assert store.wait_dispatched(60)
        shutil.copytree(root, crashed)
    monkeypatch.delattr(ClosedStore, "_proven_end")
    assert clean(crashed).min_offset > 0


def test_what_has_not_expired_stays(tmp_path: Path, made: dict[str, tuple[Path, Was]]) -> None:
    root = shutil.copytree(made["5.5.0"][0], tmp_path / "store")
    before = contents(root)
    report = clean(root, START + 71 * 3_600_000)
    assert report.files == []
    assert "kept for another 1.0 hours" in report.kept
    assert contents(root) == before


def test_it_takes_the_lock_and_refuses_damage(
    tmp_path: Path, made: dict[str, tuple[Path, Was]]
) -> None:
    root = shutil.copytree(made["5.5.0"][0], tmp_path / "store")
    with rocketstore.open(root, "r+"), pytest.raises(rocketstore.StoreLockedError):
        clean(root)
    with open(sorted((root / "commitlog").iterdir())[2], "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 50)
    before = contents(root)
    with pytest.raises(rocketstore.CorruptionError):
        clean(root)
    assert contents(root) == before


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["closed", "stateless"])
def test_killed_anywhere(
    tmp_path: Path,
    made: dict[str, tuple[Path, Was]],
    version: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without ``abort`` the next opening takes it for an orderly stop, which must be true."""
    monkeypatch.setattr("rocketstore.store.dispatch_recovery.COMPARED_NBYTES", 0)
    former, was = made[version]
    pristine, folder = shutil.copytree(former, tmp_path / "pristine"), tmp_path / "killed"
    change(pristine, kind)
    count = killed_everywhere(pristine, folder, NOW, 3, STEP, "closed")
    assert count > 60
    minimums = {check(root, was, NOW) for root in sorted(folder.iterdir())}
    assert len(minimums) > 1
