"""``RepairPlan``: what a repair will replace, and what is lost; plain data, kept as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.errors import DecodeError, RepairRefusedError
from rocketstore.files.durable import refuse_odd_output, write_file
from rocketstore.mending.steps import FileChange, Step
from rocketstore.version import __version__

SCHEMA = "rocketstore.plan/1"
#: Kinds of steps, in the order in which they are done.
KINDS = (
    *("log.cut", "log.fill", "log.segment", "queue.build", "queue.cut", "index.build"),
    *("index.dedupe", "config.restore", "config.make", "config.clamp", "foreign.aside"),
    *("checkpoint.write", "abort.remove"),
)
_WHOLE_NBYTES = 1 << 20
_PART_NBYTES = 64 << 10
_MOST_NBYTES = 1 << 30
#: Members whose parts are read.
_MEMBERS = {
    "store": dict,
    "steps": list,
    "losses": dict,
    "placeholders": list,
    "left": list,
    "options": dict,
    "madeAt": int,
}
_EXPECTS = frozenset(("size", "sha256", "mtimeNs"))


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan.

    Attributes
    ----------
    id, kind, reason, sentence : str
        ``reason`` is a code of ``doctor``.
    if_not_done : str
        What happens without the step.
    files : tuple of FileChange
    needs : tuple of str
        Steps without which this one must not be done.
    ranges : dict of str to list of (start, stop)
        Bytes of a file that change, by path; all of it where nothing is said.
    times : dict of str to int
        Modification times of the files, ns, by path.
    room_nbytes, seconds : int
        Estimates.
    """

    id: str
    kind: str
    reason: str
    sentence: str
    if_not_done: str
    files: tuple[FileChange, ...]
    needs: tuple[str, ...] = ()
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    room_nbytes: int = 0
    seconds: int = 1

    def step(self) -> Step:
        """Return what ``Switch`` does."""
        return Step(self.id, self.kind, self.sentence, self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the members of a plan."""
        return {
            "id": self.id,
            "kind": self.kind,
            "needs": list(self.needs),
            "reason": self.reason,
            "sentence": self.sentence,
            "ifNotDone": self.if_not_done,
            "loses": [],
            "roomBytes": self.room_nbytes,
            "seconds": self.seconds,
            "undo": "restore",
            "files": [self._file(change) for change in self.files],
        }

    def _file(self, change: FileChange) -> dict[str, Any]:
        found = change.to_json()
        if change.expects is not None:
            found["expects"]["mtimeNs"] = self.times.get(change.path, 0)
        return {"path": change.path, "ranges": self.ranges.get(change.path, []), **found}

    @classmethod
    def from_json(cls, found: Any) -> PlanStep:
        """Read what ``to_json`` made; raise ``ValueError`` for anything else."""
        if not isinstance(found, dict):
            raise ValueError("a step is an object")
        kind = found.get("kind")
        if kind not in KINDS:
            raise ValueError(f"steps of the kind {kind!r} are unknown to this release")
        texts = [found.get(name) for name in ("id", "reason", "sentence", "ifNotDone")]
        needs, files = found.get("needs"), found.get("files")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("id, reason, sentence and ifNotDone of a step are texts")
        if not isinstance(needs, list) or not isinstance(files, list):
            raise ValueError("needs and files of a step are lists")
        step, reason, sentence, if_not_done = (str(text) for text in texts)
        ranges: dict[str, list[tuple[int, int]]] = {}
        times: dict[str, int] = {}
        changes = tuple(_change(one, ranges, times) for one in files)
        room, seconds = found.get("roomBytes", 0), found.get("seconds", 1)
        if type(room) is not int or type(seconds) is not int:
            raise ValueError("roomBytes and seconds are numbers")
        return cls(
            step, kind, reason, sentence, if_not_done, changes, tuple(map(str, needs)), ranges,
            times, room, seconds,
        )  # fmt: skip


def _change(
    found: Any, ranges: dict[str, list[tuple[int, int]]], times: dict[str, int]
) -> FileChange:
    if not isinstance(found, dict):
        raise ValueError("a file of a step is an object")
    expects = found.get("expects")
    if isinstance(expects, dict) and expects != {"absent": True}:
        if set(expects) - _EXPECTS:
            names = ", ".join(sorted(set(expects) - _EXPECTS))
            raise ValueError(f"members of expects that this release does not know: {names}")
        time = expects.get("mtimeNs", 0)
        if type(time) is not int:
            raise ValueError("mtimeNs is a number")
        times[str(found.get("path"))] = time
        expects = {name: expects[name] for name in expects if name != "mtimeNs"}
    change = FileChange.from_json({**found, "expects": expects})
    pairs = found.get("ranges", [])
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(at) is int for at in pair)
        for pair in pairs
    ):
        raise ValueError("ranges are pairs of numbers")
    if pairs:
        ranges[change.path] = [(pair[0], pair[1]) for pair in pairs]
    return change


@dataclass(frozen=True)
class RepairPlan:
    """What a repair of one store in one state will do. Saved as JSON, it is read by ``repair``.

    Attributes
    ----------
    store : dict
        ``path, identity, identityWithoutTimes, rocketmq, geometry, config, log``.
    steps : tuple of PlanStep
        In order.
    already, by_repair : tuple of dict
        Records that the store once held and will not serve: lost before, and given up by the
        repair. ``topic, queueId, queueOffsets, log, messages, from, to, keys, why``.
    placeholders : tuple of dict
        Empty messages that keep the queue offsets of lost ones: ``topic, queueId, queueOffset,
        log``.
    left : tuple of dict
        Findings that no step mends: ``code, sentence``.
    options : dict
        The options of ``plan`` that the repair repeats.
    made_at : int
        Epoch ms.
    """

    store: dict[str, Any]
    steps: tuple[PlanStep, ...] = ()
    already: tuple[dict[str, Any], ...] = ()
    by_repair: tuple[dict[str, Any], ...] = ()
    placeholders: tuple[dict[str, Any], ...] = ()
    left: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    made_at: int = 0

    def __repr__(self) -> str:
        steps = ", ".join(f"{step.id} {step.kind}" for step in self.steps)
        return (
            f"<RepairPlan of {self.store.get('path')!r}: {steps or 'no steps'}; "
            f"{len(self.already)} losses before, {len(self.by_repair)} by it>"
        )

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps

    @property
    def losses(self) -> dict[str, list[dict[str, Any]]]:
        """The lost records by their JSON names ``already`` and ``byRepair``."""
        return {"already": list(self.already), "byRepair": list(self.by_repair)}

    @property
    def id(self) -> str:
        """SHA-256 of the plan's JSON without ``id``."""
        return hashlib.sha256(_dumps(self._document()).encode()).hexdigest()

    def _document(self) -> dict[str, Any]:
        state = "well" if not self.left else "degraded"
        return {
            "schema": SCHEMA,
            "madeBy": __version__,
            "madeAt": self.made_at,
            "options": self.options,
            "store": self.store,
            "losses": self.losses,
            "placeholders": list(self.placeholders),
            "left": list(self.left),
            "steps": [step.to_json() for step in self.steps],
            "forecast": {"state": state, "broker": []},
        }

    def to_json(self) -> dict[str, Any]:
        """Return the plan by its JSON names."""
        return {"id": self.id, **self._document()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, durably; an existing file is replaced, by a link the file that
        it names.

        Raises ``MappedFileError`` for a device, a FIFO or a folder.
        """
        refuse_odd_output(Path(path))
        content = json.dumps(self.to_json(), indent=1) + "\n"
        write_file(Path(os.path.realpath(path)), content.encode())

    @classmethod
    def from_json(cls, source: str | bytes | os.PathLike[str] | Mapping[str, Any]) -> RepairPlan:
        """Read a plan: its file, its bytes, or its parsed JSON.

        Raises ``DecodeError`` if it is no plan, was changed, or is of a newer schema.
        """
        document: Any = source
        if isinstance(source, (str, os.PathLike)):
            nbytes = os.stat(source).st_size
            if nbytes > _MOST_NBYTES:
                raise DecodeError(f"{source}: a plan has at most {_MOST_NBYTES} bytes")
            document = Path(source).read_bytes()
        try:
            if isinstance(document, bytes):
                document = json.loads(document)
            return cls._of(document)
        except KeyError as error:
            raise DecodeError(f"this is no plan of a repair: it has no {error}") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DecodeError(f"this is no plan of a repair: {error}") from error

    @classmethod
    def _of(cls, found: Any) -> RepairPlan:
        if not isinstance(found, dict):
            raise ValueError("an object is expected")
        if found.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {found.get('schema')!r}; this release reads {SCHEMA}")
        for name, kind in _MEMBERS.items():
            if not isinstance(found[name], kind):
                raise ValueError(f"its {name} is {type(found[name]).__name__}, not {kind.__name__}")
        losses = found["losses"]
        plan = cls(
            found["store"],
            tuple(PlanStep.from_json(step) for step in found["steps"]),
            tuple(losses["already"]),
            tuple(losses["byRepair"]),
            tuple(found["placeholders"]),
            tuple(found["left"]),
            found["options"],
            found["madeAt"],
        )
        if found.get("madeBy") != __version__:
            raise ValueError(
                f"it was made by release {found.get('madeBy')!r}, and this is {__version__}; run "
                "plan again"
            )
        if found.get("id") != plan.id:
            raise ValueError("its id is not that of its content: it was changed")
        return plan


def _dumps(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def selected(
    steps: Sequence[PlanStep], only: Sequence[str], skip: Sequence[str]
) -> tuple[PlanStep, ...]:
    """Return the steps whose kind or reason fits ``only`` and not ``skip``.

    Raises ``ValueError`` if a step is wanted without one that it needs.
    """
    import fnmatch

    def fits(step: PlanStep, globs: Sequence[str]) -> bool:
        names = (step.kind, step.reason)
        return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)

    kept = [one for one in steps if (not only or fits(one, only)) and not fits(one, skip)]
    known = {one.id: one for one in steps}
    ids = {one.id for one in kept}
    for step in kept:
        for need in step.needs:
            if need not in ids:
                raise ValueError(
                    f"{step.kind} ({step.reason}) needs {known[need].kind} ({known[need].reason}), "
                    "which is not selected"
                )
    return tuple(kept)


def with_needs(steps: Sequence[PlanStep]) -> tuple[PlanStep, ...]:
    """Return steps in order, numbered, with what each of them needs."""
    found: list[PlanStep] = []
    for number, step in enumerate(sorted(steps, key=lambda one: KINDS.index(one.kind)), 1):
        part = step.kind.partition(".")[0]
        before = {
            "queue": ("log",),
            "index": ("log",),
            "config": ("log", "queue"),
            "checkpoint": ("log", "queue", "index"),
            "abort": ("log", "queue", "index", "checkpoint"),
        }.get(part, ())
        needs = tuple(one.id for one in found if one.kind.partition(".")[0] in before)
        found.append(replace(step, id=f"s{number}", needs=needs))
    return tuple(found)


def identity_of(root: Path, *, times: bool = True) -> str:
    """Return the SHA-256 of names, kinds, sizes, modes, times and contents below a store's root.

    Of a file above 1 MiB the first and the last 64 KiB count. ``lock`` does not count. ``times``:
    whether modification times of files count. Raises ``RepairRefusedError`` if a file goes
    meanwhile.
    """
    try:
        return _identity_of(root, times=times)
    except FileNotFoundError as error:
        raise RepairRefusedError(
            f"{root} was changed while it was read ({error.filename} is gone); stop what writes it"
        ) from error


def _identity_of(root: Path, *, times: bool) -> str:
    digest = hashlib.sha256()
    for path in sorted(_paths(root), key=lambda one: one.relative_to(root).as_posix()):
        name = path.relative_to(root).as_posix()
        about = os.lstat(path)
        is_file = stat.S_ISREG(about.st_mode)
        row: list[Any] = [name, stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode)]
        if is_file:
            row += [about.st_size, about.st_mtime_ns if times else 0, _content(path, about.st_size)]
        elif stat.S_ISLNK(about.st_mode):
            row.append(os.readlink(path))
        digest.update(json.dumps(row).encode("ascii") + b"\n")
    return digest.hexdigest()


def _paths(root: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(root):
        found += [Path(folder, name) for name in (*folders, *names)]
    return [path for path in found if path != root / formats.LOCK_FILE]


def _content(path: Path, nbytes: int) -> str:
    digest = hashlib.sha256()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return "closed"
    with os.fdopen(fd, "rb") as file:
        if nbytes <= _WHOLE_NBYTES:
            digest.update(file.read())
        else:
            digest.update(file.read(_PART_NBYTES))
            file.seek(nbytes - _PART_NBYTES)
            digest.update(file.read(_PART_NBYTES))
    return digest.hexdigest()
