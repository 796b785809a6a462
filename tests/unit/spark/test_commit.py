"""Commits of staged batches: each row once, wherever a commit died and whatever ran between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.errors import ConfigError, DecodeError, RocketStoreError, StoreLockedError
from rocketstore.spark.sink import commit as commits
from rocketstore.spark.sink import stage
from rocketstore.spark.sink.commit import CommitReport
from rocketstore.spark.sink.ledger import Entry, Intent, Ledger, Part
from support import staging

COUNTS = [150, 0, 90]
APP = "txn:app"
CONFIG = rocketstore.MessageStoreConfig(**staging.OPTIONS)
#: Every step, and of those that come again also a later time.
DEATHS = [
    *(("open", 1), ("intent", 1), ("piece", 1), ("piece", 2), ("piece", 7), ("sync", 1)),
    *(("done", 1), ("close", 1), ("clean", 1)),
]


class StopHereError(Exception):
    """Raised at a step."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "PIECE_NBYTES", 4000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a store will be, which holds one message."""
    path = tmp_path / "store"
    with rocketstore.open(path, "a", **staging.OPTIONS) as store:
        assert store.put("T", b"first").ok
    return path


def commit(
    root: Path, staged: tuple[str, list[stage.StagedFile]], version: int = 0, **others: Any
) -> CommitReport:
    """Commit it for ``APP``."""
    options = {"app": APP, "config": CONFIG} | others
    return commits.commit(root, staged[1], stage=staged[0], version=version, **options)


def rows(batch: int) -> list[bytes]:
    """All bodies of a batch in their order."""
    return [
        body
        for partition, count in enumerate(COUNTS)
        for body in staging.bodies(batch, count, partition)
    ]


def die(root: Path, staged: tuple[str, list[stage.StagedFile]], step: str, times: int) -> None:
    """Let another process commit version 0, killed at a step."""
    arguments = {
        "root": str(root),
        "files": [[f.path, f.partition, f.rows, f.pieces] for f in staged[1]],
        "app": APP,
        "version": 0,
        "stage": staged[0],
        "options": staging.OPTIONS,
        "step": step,
        "times": times,
    }
    program = Path(staging.__file__).with_name("commit_program.py")
    ended = subprocess.run(
        [sys.executable, str(program), json.dumps(arguments)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def at_step(step: str, times: int = 1) -> Any:
    """A callback that raises at the wanted occurrence of a step."""
    left = [times]

    def on_step(name: str) -> None:
        if name == step:
            left[0] -= 1
            if left[0] == 0:
                raise StopHereError

    return on_step


def test_batches_are_appended_in_the_order_of_their_partitions(root: Path) -> None:
    staged = stage_two = staging.stage_batch(root, 0, COUNTS)
    report = commit(root, (staged[0], staged[1][::-1]))
    assert (report.rows, report.appended) == (240, 240)
    assert not Path(staged[0]).exists()
    stage_two = staging.stage_batch(root, 1, COUNTS)
    assert commit(root, stage_two, 1).appended == 240
    assert staging.stored(root) == [b"first", *rows(0), *rows(1)]
    assert len(list((root / "commitlog").iterdir())) > 3
    with rocketstore.open(root) as store:
        assert store.max_offset_in_queue("T", 3) > 100
        assert [m.body for m in store.find(topic="T", key="k149")] == [rows(0)[149], rows(1)[149]]


def test_a_version_is_appended_once(root: Path) -> None:
    commit(root, staging.stage_batch(root, 0, COUNTS), 5)
    for version in (5, 4, 0):
        again = staging.stage_batch(root, 0, COUNTS)
        assert commit(root, again, version) == CommitReport(240, 0)
        assert not Path(again[0]).exists()
    other = staging.stage_batch(root, 9, COUNTS)
    assert commit(root, other, 0, app="txn:other").appended == 240
    assert staging.stored(root) == [b"first", *rows(0), *rows(9)]


@pytest.mark.parametrize(("step", "times"), DEATHS)
def test_a_driver_killed_between_two_steps(root: Path, step: str, times: int) -> None:
    staged = staging.stage_batch(root, 0, COUNTS)
    die(root, staged, step, times)
    again = staging.stage_batch(root, 0, COUNTS, name="second")
    report = commit(root, again)
    assert report.appended <= 240
    assert staging.stored(root) == [b"first", *rows(0)]
    assert not Path(again[0]).exists()
    third = staging.stage_batch(root, 0, COUNTS)
    assert commit(root, third).appended == 0
    assert commit(root, staging.stage_batch(root, 1, COUNTS), 1).appended == 240
    assert staging.stored(root) == [b"first", *rows(0), *rows(1)]
    assert not Path(staged[0]).exists()


@pytest.mark.parametrize(("step", "times"), DEATHS)
@pytest.mark.parametrize("deaths", [1, 3])
def test_a_commit_that_fails_again_and_again(
    root: Path, step: str, times: int, deaths: int
) -> None:
    """Between the tries a broker, or another writer, appends; abort is called after each."""
    others = []
    for number in range(deaths):
        staged = staging.stage_batch(root, 0, COUNTS, name=f"try{number}")
        with pytest.raises(StopHereError):
            commit(root, staged, on_step=at_step(step, times))
        begun = Ledger(root).is_pending(staged[0])
        assert commits.abort(root, staged[0]) != begun
        assert Path(staged[0]).exists() == begun
        with rocketstore.open(root, "r+", **staging.OPTIONS) as store:
            others.append(b"other %d" % number)
            assert store.put("T", others[-1]).ok
        if step in ("sync", "done", "close", "clean") or times > 3:
            break  # the next try may find nothing left to fail at
    commit(root, staging.stage_batch(root, 0, COUNTS))
    found = staging.stored(root)
    assert [body for body in found if body.startswith(b"batch")] == rows(0)
    assert [body for body in found if body.startswith(b"other")] == others
    assert len(found) == 241 + len(others)


def test_the_next_batch_finishes_the_one_before_it(root: Path) -> None:
    with pytest.raises(StopHereError):
        commit(root, staging.stage_batch(root, 0, COUNTS), on_step=at_step("piece", 3))
    report = commit(root, staging.stage_batch(root, 1, COUNTS), 1)
    assert report.appended > 240
    assert staging.stored(root) == [b"first", *rows(0), *rows(1)]


def test_an_unfinished_batch_is_not_taken_for_what_others_wrote_later(root: Path) -> None:
    """A second application appends the very rows that are missing: they are its own."""
    staged = staging.stage_batch(root, 0, COUNTS)
    with pytest.raises(StopHereError):
        commit(root, staged, on_step=at_step("piece", 2))
    before = staging.stored(root)
    copy = staging.stage_batch(root, 0, COUNTS, name="copy")
    commit(root, copy, app="txn:other")
    assert staging.stored(root) == [*before, *rows(0)]
    commit(root, staging.stage_batch(root, 0, COUNTS))
    assert staging.stored(root) == [*before, *rows(0), *rows(0)[len(before) - 1 :]]


def test_single_writes_leave_nothing(root: Path) -> None:
    staged = staging.stage_batch(root, 0, COUNTS)
    commit(root, staged, app="once:1", once=True)
    assert not list(Ledger(root).entries())
    dead = staging.stage_batch(root, 1, COUNTS)
    with pytest.raises(StopHereError):
        commit(root, dead, app="once:2", once=True, on_step=at_step("piece", 2))
    assert not commits.abort(root, dead[0])
    assert Path(dead[0]).exists()
    commit(root, staging.stage_batch(root, 2, COUNTS), app="once:3", once=True)
    assert not list(Ledger(root).entries())
    assert not Path(dead[0]).exists()
    assert staging.stored(root)[-240:] == rows(2)


def test_stages_that_dead_writers_left_in_the_store_are_removed(root: Path) -> None:
    """A driver killed before its intent leaves a stage that no ledger names."""
    inside = "store/.rocketstore-spark/stage"
    staged = [staging.stage_batch(root, batch, [3], name=inside) for batch in range(4)]
    left, live, begun, other = (Path(folder) for folder, _ in staged)
    ledger = Ledger(root)
    part = Part(0, 0)
    ledger.write(Entry("txn:b", None, Intent(0, tuple(staged[2][1]), (part,)), str(begun)))
    long_ago = time.time() - commits.LEFT_STAGE_S - 60
    (left / "notes").touch()
    for folder in (left, live, begun, other):
        for path in [*folder.iterdir(), folder]:
            os.utime(path, (long_ago, long_ago))
    os.utime(next(live.iterdir()))
    files = sorted(path.name for path in live.iterdir())
    elsewhere = root.parent / "elsewhere"
    shutil.copytree(left, elsewhere)
    os.utime(elsewhere, (long_ago, long_ago))
    commit(root, staged[3])
    assert [path.name for path in left.iterdir()] == ["notes"]
    assert sorted(path.name for path in live.iterdir()) == files
    assert begun.exists()
    assert not other.exists()
    assert len(list(elsewhere.iterdir())) == 2
    with pytest.raises(FileNotFoundError):  # its files are gone: nothing of it is appended
        commit(root, staged[0], version=1)
    assert staging.stored(root) == [b"first", *staging.bodies(3, 3, 0)]


def test_a_new_store_is_made_where_the_stage_lies(tmp_path: Path) -> None:
    root = tmp_path / "store"
    inside = f"store/{formats.SPARK_DIR}/stage"
    staged = staging.stage_batch(root, 0, COUNTS, name=inside)
    assert commit(root, staged).start == 0
    assert staging.stored(root) == rows(0)


def test_a_batch_without_rows_makes_an_empty_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for _ in range(2):
        assert commit(root, staging.stage_batch(root, 0, [0, 0])) == CommitReport(0, 0)
        assert staging.stored(root) == []


@pytest.mark.parametrize("damage", ["flip", "short", "gone"])
def test_a_damaged_stage_is_refused_before_anything_is_appended(root: Path, damage: str) -> None:
    staged = staging.stage_batch(root, 0, COUNTS)
    path = Path(staged[1][2].path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flip" else content[:-1])
    error = FileNotFoundError if damage == "gone" else DecodeError
    with pytest.raises(error, match=path.name):
        commit(root, staged)
    assert staging.stored(root) == [b"first"]
    assert commits.abort(root, staged[0])


def test_a_store_that_is_written_elsewhere_is_not_changed(root: Path) -> None:
    staged = staging.stage_batch(root, 0, COUNTS)
    with rocketstore.open(root, "r+", **staging.OPTIONS), pytest.raises(StoreLockedError):
        commit(root, staged)
    assert Path(staged[0]).exists()
    assert commits.abort(root, staged[0])
    assert not Path(staged[0]).exists()


def test_rows_staged_for_another_version_are_refused(root: Path) -> None:
    staged = staging.stage_batch(root, 0, COUNTS)
    with pytest.raises(ConfigError, match=r"staged for RocketMQ 4\.9\.8"):
        commit(root, staged, broker_version="4.9.8")


def test_a_log_that_lost_its_beginning_is_not_guessed_at(root: Path) -> None:
    staged = staging.stage_batch(root, 0, COUNTS)
    with pytest.raises(StopHereError):
        commit(root, staged, on_step=at_step("piece", 6))
    with rocketstore.open(root, "r+", **staging.OPTIONS) as store:
        while store.max_physical_offset < 3 * staging.SEGMENT_NBYTES:
            assert store.put("T", bytes(500)).ok
    first = root / "commitlog" / formats.offset_to_file_name(0)
    first.unlink()
    with pytest.raises(RocketStoreError, match="no longer shows"):
        commit(root, staging.stage_batch(root, 0, COUNTS))


def test_a_broken_ledger_is_named(root: Path) -> None:
    commit(root, staging.stage_batch(root, 0, COUNTS))
    (path,) = Ledger(root).directory.iterdir()
    for content in (b"", b"{}", b'{"v": 2}', b"[1]", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(DecodeError, match=f"{path.name} is not a ledger"):
            commit(root, staging.stage_batch(root, 1, COUNTS), 1)


def test_property_crcs_are_written_and_recognised(tmp_path: Path) -> None:
    root = tmp_path / "store"
    options = staging.OPTIONS | {"enabled_append_prop_crc": True, "force_verify_prop_crc": True}
    config = rocketstore.MessageStoreConfig(**options)
    staged = staging.stage_batch(root, 0, COUNTS)
    with pytest.raises(StopHereError):
        commit(root, staged, config=config, on_step=at_step("piece", 4))
    commit(root, staging.stage_batch(root, 0, COUNTS), config=config)
    with rocketstore.open(root, **options) as store:
        assert not store.verify().findings
        assert [bytes(message.body) for message in store.scan()] == rows(0)


def test_a_ledger_that_others_wrote_deletes_nothing_but_stages(root: Path, tmp_path: Path) -> None:
    """A store may come from anywhere, and its ledger may name any folder."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("ten years")
    ledger = Ledger(root)
    ledger.write(Entry("once:dead", stage=str(mine), once=True))
    ledger.write(Entry(APP, done=0, stage=str(tmp_path)))
    commit(root, staging.stage_batch(root, 1, COUNTS), 1)
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
    assert [entry.app for entry in ledger.entries()] == [APP]


def test_a_copy_of_a_store_finishes_with_its_own_stage(tmp_path: Path) -> None:
    """Taken while a batch was unfinished: the first store needs its stage, too."""
    roots = [tmp_path / "store", tmp_path / "copy"]
    inside = f"store/{formats.SPARK_DIR}/stage"
    staged = staging.stage_batch(roots[0], 0, COUNTS, name=inside)
    with pytest.raises(StopHereError):
        commit(roots[0], staged, on_step=at_step("piece", 3))
    shutil.copytree(*roots)
    for root in reversed(roots):
        again = staging.stage_batch(roots[0], 0, COUNTS, name="again")
        assert 0 < commit(root, again).appended < 240
        assert staging.stored(root) == rows(0)
        assert not list((root / formats.SPARK_DIR / "stage").iterdir())


def test_a_repeated_batch_without_rows_keeps_what_was_begun(root: Path) -> None:
    """A stream's tries of a batch share a folder; a source may answer otherwise the second time."""
    with pytest.raises(StopHereError):
        commit(root, staging.stage_batch(root, 0, COUNTS), on_step=at_step("piece", 3))
    report = commit(root, staging.stage_batch(root, 0, [0, 0]))
    assert (report.rows, 0 < report.appended < 240) == (0, True)
    assert commit(root, staging.stage_batch(root, 1, COUNTS), 1).appended == 240
    assert staging.stored(root) == [b"first", *rows(0), *rows(1)]


def test_the_root_that_tasks_made_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "new" / "deep" / "store"
    staged = staging.stage_batch(root, 0, COUNTS, name=f"store/{formats.SPARK_DIR}/stage")
    synced: list[Path] = []
    sync = commits.sync_directory

    def note(path: Path) -> None:
        synced.append(path)
        sync(path)

    monkeypatch.setattr(commits, "sync_directory", note)
    commit(root, staged)
    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "deep"} <= set(synced)


@pytest.mark.parametrize("others", [(), ("stage/other",), ("ledger",)])
def test_a_write_that_is_given_up_leaves_the_store_as_it_was(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    """A store that refused a batch kept the empty folder ``.rocketstore-spark/stage``."""
    folder = tmp_path / ".rocketstore-spark"
    stage = folder / "stage" / "mine"
    for name in others:
        (folder / name).mkdir(parents=True)
    stage.mkdir(parents=True, exist_ok=True)
    (stage / f"000000-0-{'0' * 12}.seg").touch()
    assert commits.abort(tmp_path, str(stage))
    assert not stage.exists()
    left = {path.relative_to(folder).as_posix() for path in tmp_path.rglob("*") if path != folder}
    assert left == {*others, *(("stage",) if "stage/other" in others else ())}
