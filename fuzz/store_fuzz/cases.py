"""A case: a store, its damage, and the child process in which it is tried."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import select
import shutil
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store_fuzz.access import obey_modes
from store_fuzz.bases import Base
from store_fuzz.exercise import Broken, Exercise, Facts
from store_fuzz.mutations import Chooser, Mutation, apply

#: A child that uses more processor time hangs (a case takes a fraction of a second). Elapsed time
#: means little on a busy machine, so its limit is large.
CPU_LIMIT_S = 20
CLOCK_LIMIT_S = 240
#: Most private memory in use above the baseline. Pages of mapped files do not count: the system can
#: reclaim them.
MEMORY_LIMIT_NBYTES = 256 << 20
#: Most private memory to reserve: stacks of threads, an index file of the default size.
_RESERVED_NBYTES = 1536 << 20
_OUTSIDE = "outside"


@dataclass(frozen=True)
class Case:
    """A store's name, its mutations, and the seed of the queries."""

    base: str
    seed: int
    mutations: tuple[Mutation, ...]

    def to_json(self) -> str:
        """Return the case as one line."""
        return json.dumps({"base": self.base, "seed": self.seed, "mutations": self.mutations})

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Return the case of such a line."""
        row = json.loads(text)
        return cls(row["base"], row["seed"], tuple(row["mutations"]))


@dataclass(frozen=True)
class Finding:
    """The failure of a case. Cases with the same fault have the same ``kind``."""

    case: Case
    kind: str
    detail: str


def make_case(base: Base, seed: int) -> Case:
    """Return the case of a seed, with one to three mutations."""
    rng = random.Random(seed)
    chooser = Chooser(rng, base.originals, f"../../{_OUTSIDE}/bait")
    tree, chosen = base.tree, []
    for _ in range(rng.choice((1, 1, 2, 3))):
        mutation = chooser.draw(tree)
        chosen.append(mutation)
        tree = apply(tree, mutation)
    return Case(base.name, seed, tuple(chosen))


def run_here(base: Base, case: Case, directory: Path) -> None:
    """Try a case in this process; raise if it fails."""
    from store_fuzz.tree import write_tree

    tree = base.tree
    for mutation in case.mutations:
        tree = apply(tree, mutation)
    root, outside = directory / "stores" / "store", directory / _OUTSIDE
    outside.mkdir(parents=True)
    (outside / "bait").write_bytes(bytes(4096))
    write_tree(tree, root)
    obey_modes()
    exercise = Exercise(
        Facts.of(base, tree, list(case.mutations)), root, outside, random.Random(case.seed)
    )
    try:
        exercise.run()
    except Exception as error:
        error.add_note(f"during: {exercise.trace}")
        raise


def try_case(base: Base, case: Case, directory: Path) -> Finding | None:
    """Try a case in a child process with limits on time and memory."""
    read_end, write_end = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _run_child(base, case, directory, write_end)
    os.close(write_end)
    text, timed_out = _read_all(read_end, began + CLOCK_LIMIT_S)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    stacks = directory / "stacks"
    where = stacks.read_text(errors="replace") if stacks.exists() else ""
    shutil.rmtree(directory, ignore_errors=True)
    if timed_out:
        return Finding(case, "hang", f"no end after {CLOCK_LIMIT_S} s\n{where}")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        kind = "hang" if name == "SIGXCPU" else f"signal {name}"
        return Finding(case, kind, f"after {usage.ru_utime + usage.ru_stime:.1f} s\n{where}")
    answer = json.loads(text) if text else {"kind": "lost", "detail": f"exit status {status}"}
    return Finding(case, answer["kind"], answer["detail"]) if answer["kind"] else None


def _read_all(fd: int, deadline: float) -> tuple[bytes, bool]:
    text = b""
    try:
        while True:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return text, True
            chunk = os.read(fd, 65536)
            if not chunk:
                return text, False
            text += chunk
    finally:
        os.close(fd)


def _run_child(base: Base, case: Case, directory: Path, write_end: int) -> None:
    """Try a case in the child process and exit; never returns."""
    answer = {"kind": "", "detail": ""}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "stacks").open("w") as stacks:
            faulthandler.enable(stacks)
            faulthandler.dump_traceback_later(CLOCK_LIMIT_S - 20, file=stacks)
            _set_limits()
            before = _private_nbytes("RssAnon:")
            answer = _try(base, case, directory)
            grown = _private_nbytes("RssAnon:") - before
            if not answer["kind"] and grown > MEMORY_LIMIT_NBYTES:
                answer = {"kind": "memory", "detail": f"{grown} bytes above the baseline"}
    except BaseException as error:  # noqa: BLE001 - sent to the parent, which decides
        answer = {"kind": f"fuzzer: {type(error).__name__}", "detail": traceback.format_exc()}
    finally:
        os.write(write_end, json.dumps(answer).encode()[:60000])
        os._exit(0)


def _set_limits() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _private_nbytes("VmData:") + _RESERVED_NBYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _private_nbytes(kind: str) -> int:
    """Return a figure of ``/proc/self/status``: private memory in use, or reserved."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))


def _try(base: Base, case: Case, directory: Path) -> dict[str, str]:
    try:
        run_here(base, case, directory)
    except Broken as error:
        return {"kind": f"broken: {_general(str(error))}", "detail": traceback.format_exc()}
    except Exception as error:  # noqa: BLE001 - any error is a finding
        return {"kind": _raised(error), "detail": traceback.format_exc()}
    return {"kind": "", "detail": ""}


def _raised(error: BaseException) -> str:
    """Return type and place of an error: the innermost function of rocketstore in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    names = [f"{Path(f.filename).name}:{f.name}" for f in frames if "rocketstore" in f.filename]
    return f"{type(error).__name__} in {names[-1] if names else frames[-1].name}"


def _general(text: str) -> str:
    """Return a message without its numbers and paths."""
    words = [word for word in text.split() if not any(c.isdigit() or c == "/" for c in word)]
    return " ".join(words)[:100]


def shrink(base: Base, finding: Finding, new_directory: Any) -> Finding:
    """Return the same kind of finding with the fewest and smallest mutations possible."""
    best = finding
    smaller = True
    while smaller:
        smaller = False
        for mutations in _smaller(list(best.case.mutations)):
            case = Case(best.case.base, best.case.seed, tuple(mutations))
            found = try_case(base, case, new_directory())
            if found is not None and found.kind == best.kind:
                best, smaller = found, True
                break
    return best


def _smaller(mutations: list[Mutation]) -> list[list[Mutation]]:
    """Return simpler lists to try: one mutation less, or one that changes fewer bytes."""
    found = [mutations[:at] + mutations[at + 1 :] for at in range(len(mutations))]
    found = found if len(mutations) > 1 else []
    for at, mutation in enumerate(mutations):
        if mutation.get("n", 0) > 1 and mutation["op"] != "truncate":
            half = {**mutation, "n": mutation["n"] // 2}
            found.append([*mutations[:at], half, *mutations[at + 1 :]])
    return found
