"""``repair``: what it refuses, that a kill is made good, and that a plan is only data."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import (
    ConfigError,
    DecodeError,
    MappedFileError,
    RepairRefusedError,
    RocketStoreError,
    StoreLockedError,
)
from rocketstore.mending.journal import Journal
from support.seeded_ward import snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small store without its queues and with a checkpoint from the future."""
    path = tmp_path / "store"
    with rocketstore.open(path, "x", mapped_file_size_commit_log=4096) as store:
        for number in range(40):
            assert store.put(f"Topic{number % 2}", b"body" * 20, keys=f"k{number}").ok
    shutil.rmtree(path / "consumequeue")
    (path / "checkpoint").write_bytes((2**60).to_bytes(8, "big") * 3 + bytes(4072))
    return path


def test_a_sound_store_needs_nothing(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x") as store:
        assert store.put("A", b"1").ok
    plan = rocketstore.plan(tmp_path / "store")
    assert plan.empty
    assert "no steps; 0 losses" in repr(plan)
    assert rocketstore.repair(tmp_path / "store", plan).state == "already"


def test_a_plan_says_which_sizes_it_assumes(root: Path) -> None:
    """No queue file is left: a broker of another size would not load what is built."""
    sentences = [step.sentence for step in rocketstore.plan(root).steps]
    assert len([one for one in sentences if "mappedFileSizeConsumeQueue" in one]) == 1
    known = rocketstore.plan(root, mapped_file_size_consume_queue=2000)
    assert "queue.build" in {step.kind for step in known.steps}
    assert not [step for step in known.steps if "is assumed" in step.sentence]


def test_a_plan_is_saved_and_read(root: Path, tmp_path: Path) -> None:
    plan = rocketstore.plan(root)
    plan.save(tmp_path / "plan.json")
    again = rocketstore.RepairPlan.from_json(tmp_path / "plan.json")
    assert again == plan
    assert len(repr(plan)) < 300
    assert "s1 queue.build, " in repr(plan)
    assert again.id == plan.id
    assert rocketstore.repair(root, tmp_path / "plan.json").state == "done"
    with rocketstore.open(root, "r+") as store:
        assert store.put("Topic0", b"next").queue_offset == 20


@pytest.mark.parametrize("change", ["touched", "written", "added", "gone"])
def test_a_store_that_changed_is_refused_unchanged(root: Path, change: str) -> None:
    plan = rocketstore.plan(root)
    if change == "touched":
        os.utime(root / "checkpoint", ns=(1, 1))
    elif change == "written":
        (root / "checkpoint").write_bytes(bytes(4096))
    elif change == "added":
        (root / "commitlog" / "more").touch()
    else:
        (root / "checkpoint").unlink()
    before = snapshot(root)
    with pytest.raises(RepairRefusedError, match="make a new plan"):
        rocketstore.repair(root, plan)
    assert snapshot(root) == before


def test_a_copy_is_repaired_by_the_plan_of_the_original(root: Path, tmp_path: Path) -> None:
    plan = rocketstore.plan(root)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, copy_function=shutil.copy)
    with pytest.raises(RepairRefusedError, match="ignore-mtime"):
        rocketstore.repair(copy, plan)
    assert rocketstore.repair(copy, plan, ignore_mtime=True).state == "done"


def _other_kind(document: dict[str, Any]) -> None:
    document["steps"][0]["kind"] = "log.delete"


def _other_member(document: dict[str, Any]) -> None:
    document["steps"][0]["files"][0]["expects"] = {"size": 1, "sha256": "0" * 64, "inode": 7}


def _outside(document: dict[str, Any]) -> None:
    document["steps"][0]["files"][0]["path"] = "../other"


def _newer(document: dict[str, Any]) -> None:
    document["schema"] = "rocketstore.plan/2"


def _edited(document: dict[str, Any]) -> None:
    document["steps"].pop()


@pytest.mark.parametrize("change", [_other_kind, _other_member, _outside, _newer, _edited])
def test_a_plan_that_is_none_is_refused(root: Path, change: Any) -> None:
    document = json.loads(json.dumps(rocketstore.plan(root).to_json()))
    change(document)
    with pytest.raises(DecodeError):
        rocketstore.repair(root, document)


def test_a_store_in_use_is_refused(root: Path) -> None:
    plan = rocketstore.plan(root)
    with rocketstore.open(root, "r+"):
        with pytest.raises(RepairRefusedError, match=r"store\.in-use"):
            rocketstore.plan(root)
        with pytest.raises(StoreLockedError):
            rocketstore.repair(root, plan)


def test_steps_are_selected_with_what_they_need(root: Path) -> None:
    kinds = {step.kind for step in rocketstore.plan(root, only=["queue.*"]).steps}
    assert kinds == {"queue.build"}
    with pytest.raises(ConfigError, match=r"needs queue\.build"):
        rocketstore.plan(root, skip=["queue.*"])


class _KilledError(Exception):
    """Stands for a kill."""


def test_a_kill_at_any_line_of_the_journal_is_made_good(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = rocketstore.plan(root)
    before = snapshot(root)
    whole = tmp_path / "whole"
    shutil.copytree(root, whole)
    rocketstore.repair(whole, plan, undo=tmp_path / "whole-undo")
    contents = {name: row[3] for name, row in snapshot(whole).items()}
    write = Journal.write
    for last in range(1, 20):
        store, undo = tmp_path / f"store{last}", tmp_path / f"undo{last}"
        shutil.copytree(root, store)
        left = last

        def killed(self: Journal, kind: str, **members: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise _KilledError
            write(self, kind, **members)

        monkeypatch.setattr(Journal, "write", killed)
        try:
            rocketstore.repair(store, plan, undo=undo)
            ended = True
        except _KilledError:
            ended = False
        monkeypatch.setattr(Journal, "write", write)
        again = rocketstore.repair(store, plan, undo=undo)
        assert again.state in ("done", "resumed", "already")
        assert {name: row[3] for name, row in snapshot(store).items()} == contents
        rocketstore.undo_repair(store, undo)
        assert snapshot(store) == before
        if ended:
            return
    raise AssertionError("the journal has more lines than were tried")


def test_what_needs_a_person_is_refused(root: Path) -> None:
    (root / "commitlog" / "folder").mkdir()
    with pytest.raises(RepairRefusedError, match="move it away first"):
        rocketstore.plan(root)


def test_a_plan_of_other_settings_is_refused(root: Path) -> None:
    plan = rocketstore.plan(root)
    other = dataclasses.replace(plan, store={**plan.store, "config": {"no_such_option": 1}})
    with pytest.raises(DecodeError):
        rocketstore.repair(root, other)


@pytest.mark.parametrize("kind", ["fifo", "folder", "dead link", "no folder"])
def test_a_plan_takes_the_place_of_files_only(root: Path, tmp_path: Path, kind: str) -> None:
    """As root, ``-o /dev/null`` made a regular file of the device."""
    target = tmp_path / "out"
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    elif kind == "dead link":
        target.symlink_to(tmp_path / "nothing")
    else:
        target = tmp_path / "none" / "out"
    before = snapshot(tmp_path)
    with pytest.raises(
        (MappedFileError, NotADirectoryError), match=r"not a regular file|no folder"
    ):
        rocketstore.plan(root).save(target)
    assert snapshot(tmp_path) == before


def test_a_plan_is_written_to_what_a_link_names(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    rocketstore.plan(root).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "file").read_text())["steps"]


@pytest.mark.parametrize("place", ["Topic1", "Topic1/0"])
@pytest.mark.parametrize("kind", ["fifo", "file", "link"])
def test_what_is_in_the_place_of_a_queue_stops_a_plan(root: Path, place: str, kind: str) -> None:
    """Repair stopped halfway, could not go on, and could not be taken back."""
    odd = root / "consumequeue" / place
    odd.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(odd)
    elif kind == "file":
        odd.write_bytes(b"x")
    else:
        odd.symlink_to("nowhere")
    before = snapshot(root)
    with pytest.raises(RepairRefusedError, match="in the place of a folder"):
        rocketstore.plan(root)
    for level in ("quick", "full"):
        assert "store.odd-file" in rocketstore.doctor(root, level=level).counts
    with pytest.raises(RocketStoreError, match=r"place of a folder|no folder|lead to a folder"):
        rocketstore.reindex(root)
    assert snapshot(root) == before


@pytest.mark.parametrize("text", ['{"offsetTable":{"T@g":null}}', '{"offsetTable":null}'])
def test_a_table_that_a_broker_refuses_is_not_restored(root: Path, text: str) -> None:
    """The ``.bak`` with the same fault was "restored", again and again."""
    (root / "config").mkdir()
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_text(text)
    plan = rocketstore.plan(root)
    assert "config.restore" not in {step.kind for step in plan.steps}
    rocketstore.repair(root, plan)
    assert rocketstore.plan(root).empty
    assert rocketstore.doctor(root).state == "well"


@pytest.mark.parametrize(
    ("name", "value"), [("store", None), ("steps", None), ("losses", []), ("placeholders", {})]
)
def test_a_plan_with_other_types_is_no_plan(root: Path, name: str, value: Any) -> None:
    document = rocketstore.plan(root).to_json()
    with pytest.raises(DecodeError, match=f"its {name} is"):
        rocketstore.RepairPlan.from_json({**document, name: value})
    del document[name]
    with pytest.raises(DecodeError, match=f"it has no '{name}'"):
        rocketstore.RepairPlan.from_json(document)
