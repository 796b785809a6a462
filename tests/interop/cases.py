"""What the cases share: outcomes, questions to a RocketMQ, directories before and after."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketstore
from interop import ours
from interop.asking import Question
from interop.comparing import Comparison, compare
from interop.harness import Driver, line_of
from interop.workload import Job
from support.directory import files_below

#: Parts of a store that hold messages and what is made of them.
PARTS = ("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index")
Answers = list[dict[str, Any]]
#: RocketMQ 4.9 delivers delayed messages from within the store. After an unclean stop it takes
#: those whose queue units it rebuilt for due at once, and would write while it is asked; as a
#: slave it does not.
ONLY_ASKED = {"brokerRole": "SLAVE", "offsetCheckInSlave": "true"}


@dataclass
class Outcome:
    """What became of one job in one case."""

    job: Job
    found: Comparison = field(default_factory=Comparison)

    @property
    def failures(self) -> list[str]:
        """Differences that nothing explains."""
        return self.found.failures


@dataclass(frozen=True)
class Asked:
    """One store's directory and the questions about it."""

    job: Job
    root: Path
    questions: Sequence[Question]


def copy(root: Path, name: str) -> Path:
    """Copy a store beside itself, modification times too; return the copy's root."""
    target = root.parent / name
    shutil.copytree(root, target, symlinks=True)
    return target


def parts(root: Path, names: Iterable[str] = PARTS) -> dict[str, bytes]:
    """The files of the given parts of a store, by their path."""
    found = {}
    for name in names:
        if (root / name).is_dir():
            found |= {f"{name}/{path}": data for path, data in files_below(root / name).items()}
    return found


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """Names of files that are not the same, or on one side only."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def queue_stamps(root: Path) -> dict[tuple[str, int], list[tuple[str, int, int]]]:
    """Names, sizes and modification times of the files of each queue."""
    stamps: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for path in sorted(root.glob("consumequeue/*/*/*")):
        facts = path.stat()
        queue = (path.parent.parent.name, int(path.parent.name))
        stamps.setdefault(queue, []).append((path.name, facts.st_size, facts.st_mtime_ns))
    return stamps


def touched(before: Path, after: Path) -> set[tuple[str, int]]:
    """Queues whose files differ in name, size or modification time."""
    one, two = queue_stamps(before), queue_stamps(after)
    return {queue for queue in one.keys() | two.keys() if one.get(queue) != two.get(queue)}


def ask_java(version: str, asked: Sequence[Asked], scratch: Path) -> list[Answers | None]:
    """Let RocketMQ open each directory, ask, and halt: the directories are used up.

    ``None`` stands for a store that RocketMQ does not load.
    """
    more = ONLY_ASKED if line_of(version) < 5 else {}
    with Driver(version, scratch) as driver:
        opened = [
            driver.open(
                item.job.name, item.root, {**item.job.config, **more}, item.job.feature.topics
            )
            for item in asked
        ]
        loaded = [pending.result()["load"] for pending in opened]
        answers = [
            driver.ask(item.job.name, item.questions) if load else None
            for item, load in zip(asked, loaded, strict=True)
        ]
        return [pending and pending.result()["answers"] for pending in answers]


def ask_ours(root: Path, mode: str, item: Asked, *, version: str | None = None) -> Answers:
    """Open the directory with rocketstore, ask, and close it."""
    with ours.open_store(root, mode, item.job, version=version) as store:
        return ours.ask(store, item.questions)


def habits(job: Job, version: str | None = None) -> dict[str, bool]:
    """What ``version`` (that of ``job``) does with such stores, for ``compare``."""
    version = version or job.version
    return {"first_again": line_of(version) < 5}


def without_empty_files(item: Asked) -> bool:
    """Remove the empty files that a kill left in a store; whether there was one.

    RocketMQ 4.9 does not load such a store, though it was itself that was killed.
    """
    empty = [
        path
        for part in PARTS
        for path in (item.root / part).rglob("*")
        if path.is_file() and path.stat().st_size == 0
    ]
    for path in empty:
        path.unlink()
    return bool(empty)


def check_opening(
    outcome: Outcome,
    item: Asked,
    root: Path,
    mode: str,
    theirs: Answers | None,
    label: str,
    **rules: Any,
) -> None:
    """Open with rocketstore and compare all answers; what opening raises is a failure."""
    if theirs is None:
        outcome.found.fail(f"{label}: RocketMQ does not load the store")
        return
    try:
        mine = ask_ours(root, mode, item)
    except (rocketstore.RocketStoreError, OSError, ValueError) as error:
        outcome.found.fail(f"{label}: open(mode={mode!r}) raises {type(error).__name__}: {error}")
        return
    label = f"{label}, rocketstore mode {mode!r}"
    rules = {**habits(item.job), **rules}
    size = int(item.job.config["mappedFileSizeCommitLog"])
    outcome.found.add(compare(item.questions, theirs, mine, label, log_file_nbytes=size, **rules))
