"""The fuzzer of whole stores: fixed seeds find nothing, and what is broken is found."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("its child processes are limited by means of Linux", allow_module_level=True)

from store_fuzz import __main__ as program
from store_fuzz import bases, cases, sabotage
from store_fuzz.bases import Base
from store_fuzz.cases import Case
from store_fuzz.exercise import Exercise
from store_fuzz.tree import Entry, read_tree, write_tree

import rocketstore

#: Seeds from here on; each belongs to one store and one to three mutations.
FIRST_SEED = 20_000
SEEDS = 35
GROUPS = {
    "own": ["own-5.5.0", "own-4.9.8", "own-killed-5.3.3"],
    "plain": ["plain-4.9.8", "plain-5.5.0", "crash-5.3.3"],
    "others": ["crc-5.3.3", "lmq-5.3.3", "expire-4.9.8"],
}


@pytest.fixture
def directory() -> Iterator[Path]:
    path = bases.working_directory()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def base(directory: Path) -> Base:
    return bases.load("own-4.9.8", directory / "base")


@pytest.mark.parametrize("group", GROUPS)
def test_fixed_seeds_find_nothing(group: str, directory: Path) -> None:
    loaded = program.prepare(GROUPS[group], directory)
    count, found = program.hunt(
        loaded,
        iter(range(FIRST_SEED, FIRST_SEED + SEEDS)),
        directory,
        lambda _: False,
        program.UNSEEN,
    )
    assert count == SEEDS
    assert not found, "\n\n".join(
        f"seed {f.case.seed}: {f.kind}\n{f.detail}\n{f.case.to_json()}" for f in found
    )


def test_a_case_is_the_same_for_a_seed(base: Base) -> None:
    first = cases.make_case(base, 7)
    assert cases.make_case(base, 7) == first
    assert Case.from_json(first.to_json()) == first
    assert cases.make_case(base, 8) != first


def test_a_tree_is_written_as_it_was_read(base: Base, directory: Path) -> None:
    tree = {**base.tree, "link": Entry("link", target="checkpoint")}
    write_tree(tree, directory / "copy")
    assert read_tree(directory / "copy") == tree


def flip(base: Base) -> dict[str, Any]:
    """Damage to the body of a record in the middle of the log."""
    record = next(r for r in base.originals[20:] if r.body.stop - r.body.start > 40)
    path = f"commitlog/{record.offset - record.offset % 16384:020d}"
    at = record.offset % 16384 + record.body.start + 5
    return {"op": "flip", "path": path, "at": at, "bit": 3}


def log_names(base: Base) -> list[str]:
    return sorted(path for path in base.tree if path.startswith("commitlog/"))


KINDS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "no log": lambda logs: {"op": "delete", "path": "commitlog"},
    "log elsewhere": lambda logs: {"op": "rename", "path": "commitlog", "to": "elsewhere"},
    "empty log folder": lambda logs: {"op": "empty", "path": "commitlog"},
    "no end": lambda logs: {"op": "delete", "path": logs[-1]},
    "hole": lambda logs: {"op": "delete", "path": logs[1]},
    "first unreadable": lambda logs: {"op": "forbid", "path": logs[0]},
    "last unreadable": lambda logs: {"op": "forbid", "path": logs[-1]},
    "queue unreadable": lambda logs: {"op": "forbid", "path": f"consumequeue/Orders/0/{0:020d}"},
    "names exchanged": lambda logs: {"op": "exchange", "path": logs[0], "other": logs[1]},
    "names too high": lambda logs: {"op": "shift", "path": "commitlog", "by": 16384},
    "a FIFO": lambda logs: {"op": "fifo", "path": "checkpoint"},
    "a folder": lambda logs: {"op": "folder", "path": "abort"},
    "two places": lambda logs: {
        **{"op": "places", "path": logs[1], "seed": 7},
        "places": [[3000, 40], [9000, 8]],
    },
    "time of the checkpoint": lambda logs: {
        **{"op": "write", "path": "checkpoint", "at": 0},
        "hex": (2**62).to_bytes(8, "big").hex(),
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_users_met_breaks_no_promise(kind: str, base: Base, directory: Path) -> None:
    for check in ("openable", "writable", "verified", "pulled", "found"):
        base.whole[check] = True
    mutation = KINDS[kind](log_names(base))
    finding = cases.try_case(base, Case(base.name, 3, (mutation,)), directory / "case")
    assert finding is None, finding.detail


@pytest.mark.parametrize("way", sabotage.WAYS)
def test_what_is_taken_from_under_a_writer_loses_nothing(
    way: str, base: Base, directory: Path
) -> None:
    write_tree(base.tree, directory / "store")
    done = sabotage.Sabotage(directory / "store", base.options, base.originals, random.Random(1))
    done.way = way
    assert done.run() == ""


def test_a_promise_of_a_kind_that_is_broken_is_a_finding(
    base: Base, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verify that is always content, and a library that opens whatever stands there."""
    for check in ("openable", "writable", "verified", "pulled", "found"):
        base.whole[check] = True
    hole, gone = (
        Case(base.name, 3, (KINDS[kind](log_names(base)),)) for kind in ("hole", "no log")
    )
    monkeypatch.setattr("rocketstore.verify.report.VerifyReport.ok", True)
    finding = cases.try_case(base, hole, directory / "content")
    assert finding is not None
    assert "verify says ok" in finding.kind
    whole = directory / "whole"
    write_tree(base.tree, whole)
    real = rocketstore.open
    monkeypatch.setattr(rocketstore, "open", lambda root, *modes, **o: real(whole, *modes, **o))
    finding = cases.try_case(base, gone, directory / "opened")
    assert finding is not None
    assert "mode r opens it" in finding.kind


FAULTS = {
    "an exception of no kind of ours": (lambda self: [][1], "IndexError"),
    "a signal": (lambda self: __import__("os").kill(__import__("os").getpid(), 11), "SIGSEGV"),
    "a process that ends": (lambda self: __import__("os")._exit(3), "lost"),
    "memory": (lambda self: self.__dict__.update(kept=b"x" * (300 << 20)), "memory"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_finding(
    fault: str, base: Base, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kind = FAULTS[fault]
    kept: list[Exercise] = []
    monkeypatch.setattr(Exercise, "run", lambda self: (kept.append(self), run(self)))
    finding = cases.try_case(base, Case(base.name, 1, ()), directory / "case")
    assert finding is not None
    assert kind in finding.kind, finding


def test_a_process_that_does_not_end_is_a_finding(
    base: Base, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spin(self: Exercise) -> None:
        while True:
            pass

    monkeypatch.setattr(Exercise, "run", spin)
    monkeypatch.setattr(cases, "CPU_LIMIT_S", 1)
    finding = cases.try_case(base, Case(base.name, 1, ()), directory / "case")
    assert finding is not None
    assert finding.kind == "hang"


def test_what_was_never_written_is_a_finding(
    base: Base, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that does not look at the body's CRC delivers the damaged body."""
    case = Case(base.name, 1, (flip(base),))
    assert cases.try_case(base, case, directory / "good") is None
    import rocketstore.log.commit_log

    real = rocketstore.log.commit_log.record_flags
    monkeypatch.setattr(
        "rocketstore.store.read_only.record_flags", lambda config: real(config) & ~1
    )
    monkeypatch.setattr("rocketstore.log.commit_log.record_flags", lambda config: real(config) & ~1)
    finding = cases.try_case(base, case, directory / "bad")
    assert finding is not None
    assert "never written" in finding.kind


def test_a_finding_is_made_small(base: Base, directory: Path) -> None:
    needed = {"op": "delete", "path": "checkpoint"}
    noise = [{"op": "truncate", "path": "abort", "n": 0}, {"op": "delete", "path": "nothing"}]
    case = Case(base.name, 1, (noise[0], needed, noise[1]))

    def has_checkpoint(base: Base, case: Case, directory: Path) -> cases.Finding | None:
        return cases.Finding(case, "gone", "") if needed in case.mutations else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "try_case", has_checkpoint)
        found = cases.shrink(base, cases.Finding(case, "gone", ""), lambda: directory / "case")
    assert found.case.mutations == (needed,)
