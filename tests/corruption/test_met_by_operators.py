"""What engineers on call met: stores with parts of others, lost tables, short files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore import MessageStoreConfig
from rocketstore.errors import RepairRefusedError
from rocketstore.store.verifying import verify_files
from rocketstore.testing import check_invariants
from support.other_user import as_nobody, give_away, reachable_folder


def _codes(root: Path) -> set[str]:
    found = rocketstore.doctor(root).findings
    return {one.code for one in found if one.severity != "note"}


def _mend(root: Path) -> rocketstore.RepairPlan:
    """Plan and repair; the store is well then."""
    plan = rocketstore.plan(root)
    report = rocketstore.repair(root, plan)
    assert report.verdict is not None
    assert report.verdict.state == "well"
    assert rocketstore.plan(root).empty
    return plan


@pytest.mark.parametrize("base", ["crash-5.3.3", "crash-4.9.8", "broker-5.3.3"])
def test_only_abort_and_checkpoint_are_to_be_mended(tmp_path: Path, base: str) -> None:
    root = unpack(base, tmp_path)
    (root / "abort").touch()
    kinds = [step.kind for step in _mend(root).steps]
    assert kinds[-1] == "abort.remove"
    assert not (root / "abort").exists()


def test_queues_of_another_store_say_nothing_of_the_log(tmp_path: Path) -> None:
    """Two of their units named places past the log's end: it got a tail, and a gap for good."""
    root = unpack("plain-5.3.3", tmp_path / "a")
    other = unpack("plain-4.9.8", tmp_path / "b")
    shutil.rmtree(root / "consumequeue" / "TopicA")
    shutil.copytree(other / "consumequeue" / "TopicA", root / "consumequeue" / "TopicA")
    with rocketstore.open(root, "r") as store:
        end = store.recovery_report.log_end
        assert not store.recovery_report.damaged
    assert not [code for code in _codes(root) if code.startswith("log.")]
    plan = _mend(root)
    assert {step.kind for step in plan.steps} == {"queue.build", "checkpoint.write"}
    assert not plan.already
    with rocketstore.open(root, "r") as store:
        assert store.recovery_report.log_end == end


def test_a_lost_end_still_counts_each_message_once(tmp_path: Path) -> None:
    root = unpack("broker-5.3.3", tmp_path)
    path = root / "commitlog" / "00000000000000000000"
    content = path.read_bytes()
    path.write_bytes(content[:60000] + bytes(len(content) - 60000))
    lost = rocketstore.doctor(root).data.messages
    plan = rocketstore.plan(root)
    assert sum(one["messages"] or 0 for one in plan.already) == lost > 50


@pytest.mark.parametrize("damage", ["zeros", "short"])
def test_units_of_a_batch_queue_are_built(tmp_path: Path, damage: str) -> None:
    """The plan named the log, which is sound, and refused."""
    root = unpack("inner-5.3.3", tmp_path)
    path = root / "batchconsumequeue" / "BCQ" / "0" / "00000000000000000000"
    content = path.read_bytes()
    path.write_bytes(bytes(46) + content[46:] if damage == "zeros" else content[:50])
    assert "queue.build" in {step.kind for step in _mend(root).steps}
    assert path.read_bytes() == content


def test_topics_that_are_gone_are_made(tmp_path: Path) -> None:
    root = unpack("broker-5.3.3", tmp_path)
    path = root / "config" / "topics.json"
    named = {name for name in json.loads(path.read_text())["topicConfigTable"] if "Mix" in name}
    for one in (path, path.with_name("topics.json.bak")):
        one.unlink(missing_ok=True)
    verdict = rocketstore.doctor(root)
    assert verdict.state == "degraded"
    assert "config.topic-missing" in {one.code for one in verdict.findings}
    _mend(root)
    assert named <= json.loads(path.read_text())["topicConfigTable"].keys()


def test_a_damaged_log_with_queues_in_rocksdb(tmp_path: Path) -> None:
    """The plan said that a broker rebuilds the queues; it deletes 74 messages first."""
    root = unpack("rocksdb-5.5.0", tmp_path)
    assert rocketstore.plan(root).empty
    path = root / "commitlog" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[16384:16386] = b"\xff\xff"
    path.write_bytes(content)
    with pytest.raises(RepairRefusedError, match=r"log\.record.*Do not start a broker"):
        rocketstore.plan(root)


def _findings(root: Path) -> list[tuple[str, str]]:
    return [(one.code, one.where[0].file) for one in rocketstore.doctor(root).findings]


def test_a_table_that_may_not_be_read_is_not_called_empty() -> None:
    with reachable_folder() as folder:
        root = unpack("broker-5.3.3", folder)
        whole = unpack("broker-5.3.3", folder / "whole")
        os.chmod(root / "config" / "consumerOffset.json", 0)
        found = as_nobody(_findings, root, whole)
    about = [code for code, file in found if file == "config/consumerOffset.json"]
    assert about == ["store.owner"]


def _first_errors(root: Path) -> list[str]:
    """What the calls on a store's path raise, one after the other."""
    out, whole = root.parent.parent / "out", root.parent.parent / "whole" / "store"
    calls: tuple[Callable[[], Any], ...] = (
        lambda: rocketstore.doctor(root), lambda: rocketstore.plan(root),
        lambda: rocketstore.report(root, out / "page.html"), lambda: rocketstore.open(root).close(),
        lambda: rocketstore.clone(root, out / "clone"), lambda: rocketstore.diff(whole, root),
        lambda: rocketstore.split(root, out / "split", topics=["T"]),
        lambda: rocketstore.export(root, out / "export"), lambda: check_invariants(root),
        lambda: verify_files(root, MessageStoreConfig()),
    )  # fmt: skip
    found = []
    for call in calls:
        try:
            call()
            found.append("nothing")
        except Exception as error:  # noqa: BLE001 - its name is the answer
            found.append(type(error).__name__)
    return found


@pytest.mark.parametrize("locked", ["private", "private/store"])
def test_a_store_that_may_not_be_reached_is_not_called_missing(locked: str) -> None:
    with reachable_folder() as folder:
        unpack("broker-5.3.3", folder / "whole")
        root = unpack("broker-5.3.3", folder / "private")
        (folder / "out").mkdir(mode=0o777)
        (folder / locked).chmod(0)
        found = as_nobody(_first_errors, root, folder / "whole" / "store")
    assert found == ["PermissionError"] * 10


def test_a_store_without_a_message_is_well(tmp_path: Path) -> None:
    """It had no folder of the log, and its messages counted as lost."""
    rocketstore.open(tmp_path / "empty", "x").close()
    verdict = rocketstore.doctor(tmp_path / "empty")
    assert verdict.state == "well"
    assert rocketstore.diff(tmp_path / "empty", tmp_path / "empty").state == "equal"
    shutil.rmtree(tmp_path / "empty" / "commitlog")
    assert rocketstore.doctor(tmp_path / "empty").state == "well"


def test_a_write_protected_store_can_be_cloned() -> None:
    """``chmod -R a-w`` keeps a broker from starting; the copy could not be moved to its name."""

    def ask(root: Path) -> Any:
        report = rocketstore.clone(root, root.with_name("copy"))
        modes = (os.stat(report.destination).st_mode & 0o777, os.stat(root).st_mode & 0o777)
        return report.state, modes

    with reachable_folder() as folder:
        for name in ("protected", "whole"):
            (folder / name).mkdir()
            with rocketstore.open(folder / name / "store", "a") as store:
                store.put("T", b"x")
        give_away(folder / "protected")
        for path in (folder / "protected/store").rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        (folder / "protected/store").chmod(0o555)
        answer = as_nobody(ask, folder / "protected/store", folder / "whole/store")
        assert answer == ("done", (0o555, 0o555))


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_log_that_may_not_be_read_is_not_called_gone(level: str) -> None:
    def ask(root: Path) -> Any:
        verdict = rocketstore.doctor(root, level=level)
        return verdict.state, verdict.sentence, sorted(verdict.counts)

    with reachable_folder() as folder:
        for name in ("hidden", "whole"):
            with rocketstore.open(folder / name, "a") as store:
                store.put("T", b"x")
        give_away(folder / "hidden")
        (folder / "hidden/commitlog").chmod(0)
        state, sentence, codes = as_nobody(ask, folder / "hidden", folder / "whole")
        assert state == "unreadable"
        assert "nothing is known of its messages" in sentence
        assert "store.owner" in codes
        assert "store.log-missing" not in codes
