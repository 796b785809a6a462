"""Calls that repair, rebuild and move stores, killed anywhere: the same call makes it whole."""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rocketstore
from crash.test_disk_full import SmallDisk
from rocketstore.errors import StoreFullError
from rocketstore.moving import clone as cloning
from rocketstore.moving import replay as replaying
from rocketstore.moving.exports import exporting, import_kept, import_new, importing, pieces
from rocketstore.testing.fixtures import SMALL_FILES
from support.file_trees import tree_of
from support.kill_points import calls_of, run_until_call
from support.looked_stores import make_store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")

KILLS = int(os.environ.get("ROCKETSTORE_MOVING_KILLS", "1"))
SEED = os.environ.get("ROCKETSTORE_MOVING_SEED") or str(random.SystemRandom().randrange(1 << 31))


class Job(NamedTuple):
    """A call to kill.

    ``prepare`` fills an empty folder; ``act`` is the call, ``is_over`` says that it must not be
    repeated, and ``answer`` is what the folder must hold afterwards.
    """

    prepare: Callable[[Path], None]
    act: Callable[[Path], Any]
    is_over: Callable[[Path], bool]
    answer: Callable[[Path], Any]


def named(folder: Path, name: str, suffix: str) -> bool:
    """Whether a store was given its name, and its work folder is gone."""
    return (folder / name).exists() and not (folder / f"{name}{suffix}").exists()


# --- repairs ------------------------------------------------------------------------------------


def broken_store(folder: Path) -> None:
    """Zero a unit, lose a queue, add units past an end, break an index file."""
    root = folder / "store"
    with rocketstore.open(root, "x", **SMALL_FILES) as store:
        for number in range(300):
            store.put(f"T{number % 3}", b"%d" % number, number % 2, "tag", f"key-{number}")
    with next((root / "consumequeue/T0/0").iterdir()).open("r+b") as file:
        file.write(bytes(20))
    shutil.rmtree(root / "consumequeue/T1/1")
    (root / "consumequeue/T2/0/00000000000000002000").write_bytes(b"\1" * 2000)
    with min((root / "index").iterdir()).open("r+b") as file:
        file.seek(40)
        file.write(b"\xff" * 40)


def planned_store(folder: Path) -> None:
    """The same with a damaged record, and the plan that mends it."""
    broken_store(folder)
    with min((folder / "store/commitlog").iterdir()).open("r+b") as file:
        file.seek(3000)
        file.write(bytes(300))
    rocketstore.plan(folder / "store").save(folder / "plan.json")


def mended(folder: Path) -> Any:
    """The store's files; then all is taken back, and what was there before."""
    store, undo = folder / "store", folder / "undo"
    files = tree_of(store, times=False)
    # Index files are named by the time at which they are made.
    index = [files.pop(name) for name in sorted(files) if name.startswith("index/")]
    with rocketstore.open(store) as opened:
        assert opened.verify().ok
    rocketstore.undo_repair(store, undo)
    return files, index, tree_of(store, times=False)


# --- moves --------------------------------------------------------------------------------------


def plain_store(folder: Path) -> None:
    make_store(folder / "store")


def exported(columns: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        make_store(folder / "store")
        rocketstore.export(folder / "store", folder / "out", columns=columns)

    return prepare


def export_answer(folder: Path) -> Any:
    lines = (folder / "out/_manifest.ndjson").read_text().splitlines()
    files = tree_of(folder / "out", times=False)
    del files["_manifest.ndjson"]
    return files, len(lines)


def messages(folder: Path) -> Any:
    with rocketstore.open(folder / "new") as store:
        assert store.recovery_report.clean
        assert store.verify().ok
        return [
            (one.topic, one.queue_id, one.queue_offset, one.body, list(one.properties.items()))
            for one in store.scan()
        ]


def same_log(folder: Path) -> Any:
    messages(folder)
    parts = ("commitlog", "consumequeue")
    return [tree_of(folder / "new" / part, times=False) for part in parts]


def copied(folder: Path) -> Any:
    messages(folder)
    return tree_of(folder / "new")


JOBS = {
    "repair": Job(
        planned_store,
        lambda at: rocketstore.repair(at / "store", at / "plan.json", undo=at / "undo"),
        lambda _: False,
        mended,
    ),
    "reindex": Job(
        broken_store,
        lambda at: rocketstore.reindex(at / "store", undo=at / "undo"),
        lambda _: False,
        mended,
    ),
    "export": Job(
        plain_store,
        lambda at: rocketstore.export(
            at / "store", at / "out", to="ndjson", partition_by=["topic"]
        ),
        lambda at: (
            (at / "out/_manifest.ndjson").exists()
            and not (at / "out" / exporting.WORK_FOLDER).exists()
        ),
        export_answer,
    ),
    "import-new": Job(
        exported("full"),
        lambda at: rocketstore.import_(at / "out", at / "new"),
        lambda at: named(at, "new", importing.WORK_SUFFIX),
        messages,
    ),
    "import-keep": Job(
        exported("topic,raw"),
        lambda at: rocketstore.import_(at / "out", at / "new", offsets="keep"),
        lambda at: named(at, "new", importing.WORK_SUFFIX),
        same_log,
    ),
    "clone": Job(
        plain_store,
        lambda at: rocketstore.clone(at / "store", at / "new"),
        lambda at: named(at, "new", cloning.WORK_SUFFIX),
        copied,
    ),
    "clone-live": Job(
        plain_store,
        lambda at: rocketstore.clone(at / "store", at / "new", live=True),
        lambda at: named(at, "new", cloning.WORK_SUFFIX),
        same_log,
    ),
    "replay": Job(
        plain_store,
        lambda at: rocketstore.replay(at / "store", at / "new"),
        lambda at: named(at, "new", replaying.WORK_SUFFIX),
        messages,
    ),
}


@pytest.fixture
def few_between_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks and pieces between which there are a few records."""
    monkeypatch.setattr(import_new, "MARK_ROWS", 40)
    monkeypatch.setattr(import_kept, "MARK_NBYTES", 6000)
    monkeypatch.setattr(pieces, "PIECE_NBYTES", 8000)


@pytest.mark.usefixtures("few_between_marks")
@pytest.mark.parametrize("name", list(JOBS))
def test_a_kill_at_a_random_place_is_made_good(name: str, tmp_path: Path) -> None:
    job, chance = JOBS[name], random.Random(f"{name} {SEED}")
    template, place, whole = tmp_path / "template", tmp_path / "place", tmp_path / "whole"
    template.mkdir()
    job.prepare(template)
    # What is imported on first use is not counted.
    shutil.copytree(template, place)
    job.act(place)
    shutil.rmtree(place)
    shutil.copytree(template, whole)
    calls = calls_of(lambda: job.act(whole))
    wanted = job.answer(whole)
    left = {path.name for path in whole.iterdir()}
    killed = tries = 0
    # Some calls are over before: how many they are depends on threads.
    while killed < KILLS and tries < 2 * KILLS:
        point = chance.randrange(1, calls)
        tries += 1
        about = f"{name} seed {SEED} try {tries} at call {point} of {calls}"
        print(about)
        shutil.copytree(template, place)
        killed += run_until_call(lambda: job.act(place), point)
        if not job.is_over(place):
            job.act(place)
        assert job.answer(place) == wanted, about
        # What a killed call may leave has a name of its own, and is deleted by the next one.
        assert {path.name for path in place.iterdir() if "-over" not in path.name} == left, about
        shutil.rmtree(place)
    print(f"{name}: {killed} of {tries} calls were killed")


# --- full disks ---------------------------------------------------------------------------------

DISK_NBYTES = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_NBYTES}", "none", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root and the right to mount")
    yield SmallDisk(place)
    gc.collect()  # errors hold what they met, and that its mappings
    subprocess.run(["umount", str(place)], check=True)


#: New stores of the default sizes would not fit.
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 20,
    "max_index_num": 100,
}
FULL: dict[str, Callable[[Path], Any]] = {
    **{name: JOBS[name].act for name in ("export", "clone", "clone-live")},
    "import-new": lambda at: rocketstore.import_(at / "out", at / "new", **SMALL),
    "import-keep": lambda at: rocketstore.import_(at / "out", at / "new", offsets="keep", **SMALL),
    "replay": lambda at: rocketstore.replay(at / "store", at / "new", **SMALL),
}


@pytest.mark.usefixtures("few_between_marks")
@pytest.mark.parametrize("name", list(FULL))
def test_a_full_disk_stops_it_and_the_same_call_goes_on(
    name: str, tmp_path: Path, disk: SmallDisk
) -> None:
    job, act = JOBS[name], FULL[name]
    template, whole, place = tmp_path / "template", tmp_path / "whole", disk.place / "place"
    template.mkdir()
    job.prepare(template)
    shutil.copytree(template, whole)
    act(whole)
    wanted = job.answer(whole)
    stopped = 0
    for left in (0, 4, 13, 24, 35):
        shutil.copytree(template, place)
        disk.fill_but(left * 4096)
        try:
            act(place)
            disk.make_room()
        except StoreFullError:
            stopped += 1
            disk.make_room()
            act(place)
        assert job.answer(place) == wanted, left
        shutil.rmtree(place)
    assert stopped
