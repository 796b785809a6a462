"""Stores damaged by seed, and what a repair of each must keep, name and give back."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rocketstore
from golden.golden_stores import NAMES, about, unpack
from rocketstore import formats
from rocketstore.errors import RepairRefusedError
from support.ward_damages import FIRST_SEED, MORE_DAMAGES

BASES = [name for name in NAMES if not name.startswith(("rocksdb", "inner"))]
Damage = Callable[[Path, random.Random], str]


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return kind, mode, owner, time and content of every path below ``root``."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        seen = os.lstat(path)
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        name = path.relative_to(root).as_posix()
        found[name] = (seen.st_mode, seen.st_uid, seen.st_mtime_ns, content)
    return found


def _unit_offsets(root: Path) -> Iterator[int]:
    """Yield the log offsets that units of queue files name."""
    layout = formats.CONSUME_QUEUE_UNIT
    for path in (root / "consumequeue").glob("*/*/*"):
        content = path.read_bytes() if path.is_file() else b""
        for at in range(0, len(content) - layout.nbytes + 1, layout.nbytes):
            offset, nbytes, _ = layout.struct.unpack_from(content, at)
            if 0 < nbytes < 2**31 - 1:
                yield offset


def _files(folder: Path) -> list[Path]:
    """Return a store's own files below one of its folders."""
    if not folder.is_dir():
        return []
    names = (path for path in folder.rglob("*") if path.is_file())
    is_table = folder.name == "config"
    return sorted(path for path in names if is_table or path.name.isdecimal())


def _overwrite(path: Path, at: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


def _zeros_in_log(root: Path, seed: random.Random) -> str:
    path = seed.choice(_files(root / "commitlog"))
    at = seed.randrange(0, max(1, path.stat().st_size - 5000), 512)
    nbytes = seed.choice((64, 512, 4096))
    _overwrite(path, at, bytes(nbytes))
    return f"{nbytes} zeros at {at} of {path.name}"


def _flipped_bit(root: Path, seed: random.Random) -> str:
    path = seed.choice(_files(root / "commitlog"))
    if not path.stat().st_size:
        return "nothing"
    at = seed.randrange(path.stat().st_size)
    old = path.read_bytes()[at]
    _overwrite(path, at, bytes((old ^ (1 << seed.randrange(8)),)))
    return f"a bit at {at} of {path.name}"


def _missing_segment(root: Path, seed: random.Random) -> str:
    paths = _files(root / "commitlog")
    if len(paths) < 3:
        return "nothing"
    path = seed.choice(paths[1:-1])
    path.unlink()
    return f"no {path.name}"


def _short_segment(root: Path, seed: random.Random) -> str:
    paths = _files(root / "commitlog")
    if len(paths) < 2:
        return "nothing"
    path = seed.choice(paths)
    if path.stat().st_size < 2:
        return "nothing"
    os.truncate(path, seed.randrange(1, path.stat().st_size))
    return f"{path.name} is short"


def _swapped_segments(root: Path, _: random.Random) -> str:
    paths = _files(root / "commitlog")
    if len(paths) < 2:
        return "nothing"
    aside = root / "aside"
    paths[0].rename(aside)
    paths[1].rename(paths[0])
    aside.rename(paths[1])
    return "two names are exchanged"


def _empty_next(root: Path, _: random.Random) -> str:
    last = _files(root / "commitlog")[-1]
    start = int(last.name) + last.stat().st_size
    (root / "commitlog" / formats.offset_to_file_name(start)).touch()
    return "an empty next segment"


def _torn_tail(root: Path, seed: random.Random) -> str:
    (root / "abort").touch()
    with rocketstore.open(root, "r") as store:
        end = store.recovery_report.log_end
    for path in _files(root / "commitlog"):
        at = end - int(path.name)
        if 0 < at <= path.stat().st_size:
            nbytes = min(seed.randrange(8, 80), at)
            _overwrite(path, at - nbytes, bytes(nbytes))
    return "a torn tail"


def _queue_file(root: Path, seed: random.Random) -> str:
    paths = _files(root / "consumequeue")
    if not paths:
        return "nothing"
    path, kind = seed.choice(paths), seed.choice(("gone", "short", "zero", "wrong"))
    if kind == "gone":
        path.unlink()
    elif kind == "short":
        os.truncate(path, seed.randrange(path.stat().st_size))
    elif kind == "zero":
        _overwrite(path, 0, bytes(path.stat().st_size))
    else:
        _overwrite(path, 20 * seed.randrange(4), seed.randbytes(20))
    return f"{path.relative_to(root)} is {kind}"


def _no_folder(root: Path, seed: random.Random) -> str:
    name = seed.choice(("consumequeue", "index"))
    shutil.rmtree(root / name, ignore_errors=True)
    return f"no {name}"


def _index_file(root: Path, seed: random.Random) -> str:
    paths = _files(root / "index")
    if not paths:
        return "nothing"
    path, kind = seed.choice(paths), seed.choice(("gone", "short", "noise"))
    if kind == "gone":
        path.unlink()
    elif kind == "short":
        os.truncate(path, seed.randrange(path.stat().st_size))
    else:
        _overwrite(path, seed.randrange(path.stat().st_size - 20), seed.randbytes(20))
    return f"{path.relative_to(root)} is {kind}"


def _checkpoint(root: Path, seed: random.Random) -> str:
    path, kind = root / "checkpoint", seed.choice(("gone", "short", "zero", "future", "noise"))
    if kind == "gone":
        path.unlink(missing_ok=True)
    elif kind == "short":
        path.write_bytes(b"\0" * 100)
    elif kind == "zero":
        path.write_bytes(bytes(4096))
    elif kind == "future":
        path.write_bytes((2**60).to_bytes(8, "big") * 3 + bytes(4096 - 24))
    else:
        path.write_bytes(seed.randbytes(4096))
    return f"the checkpoint is {kind}"


def _crashed(root: Path, _: random.Random) -> str:
    (root / "abort").touch()
    return "abort"


def _foreign(root: Path, seed: random.Random) -> str:
    name = seed.choice(("core.4711", ".DS_Store", "notes.bak"))
    (root / "commitlog" / name).write_text("not a segment")
    return f"commitlog/{name}"


def _table(root: Path, seed: random.Random) -> str:
    paths = [path for path in _files(root / "config") if path.suffix == ".json"]
    if not paths:
        return "nothing"
    path = seed.choice(paths)
    os.truncate(path, seed.randrange(path.stat().st_size))
    backup = path.with_name(path.name + ".bak")
    if seed.random() < 0.5 and backup.exists():
        os.truncate(backup, min(3, backup.stat().st_size))
    return f"config/{path.name} is incomplete"


DAMAGES: tuple[Damage, ...] = (
    _zeros_in_log, _flipped_bit, _missing_segment, _short_segment, _swapped_segments, _empty_next,
    _torn_tail, _queue_file, _no_folder, _index_file, _checkpoint, _crashed, _foreign, _table,
)  # fmt: skip


class SeededStore:
    """A store damaged by a seed in one to three ways; of more ways from seed 10,000 on.

    Parameters
    ----------
    seed : int
    directory : Path
        Empty.
    look : callable, optional
        Called with the root before the damage; ``seen`` keeps what it returns.
    """

    def __init__(
        self, seed: int, directory: Path, look: Callable[[Path], Any] = lambda _: None
    ) -> None:
        chosen = random.Random(seed)
        is_more = seed >= FIRST_SEED
        self.base = chosen.choice([*BASES, "inner-5.3.3"] if is_more else BASES)
        self.root = unpack(self.base, directory)
        (self.root / "lock").unlink(missing_ok=True)
        self.seen = look(self.root)
        self.records = self._records()
        self.segment_nbytes = int(about(self.base)["config"]["mappedFileSizeCommitLog"])
        count = chosen.randint(1, 3)
        ways = (*DAMAGES, *MORE_DAMAGES) if is_more else DAMAGES
        self.damages = [one(self.root, chosen) for one in chosen.sample(ways, count)]

    def __str__(self) -> str:
        return f"{self.base}: {'; '.join(self.damages)}"

    def remember(self) -> None:
        """Remember the damaged log, and which of its records are whole."""
        self.intact = self._intact()
        self.damaged = [path.read_bytes() for path in _files(self.root / "commitlog")]
        self.named_end = max(_unit_offsets(self.root), default=-1)

    def _records(self) -> dict[int, bytes]:
        """Return the bytes of every good record by log offset."""
        found = {}
        with rocketstore.open(self.root, "r") as store:
            for message in store.scan():
                found[message.physical_offset] = message.store_size
        content = {int(path.name): path.read_bytes() for path in _files(self.root / "commitlog")}
        size = max(map(len, content.values()))
        return {
            at: content[at - at % size][at % size : at % size + nbytes]
            for at, nbytes in found.items()
        }

    def _intact(self) -> set[int]:
        """Return the log offsets of records whose bytes are all there, under whatever name."""
        contents = [path.read_bytes() for path in _files(self.root / "commitlog")]
        size = self.segment_nbytes
        return {
            at for at, record in self.records.items()
            if any(one[at % size : at % size + len(record)] == record for one in contents)
        }  # fmt: skip

    def judge(self) -> str:
        """Plan, repair, look, repair again and undo; return ``refused`` or ``well``.

        Raises ``AssertionError`` with the first promise that is not kept.
        """
        before = snapshot(self.root)
        self.remember()
        try:
            plan = rocketstore.plan(self.root)
        except RepairRefusedError as error:
            assert snapshot(self.root) == before, "a refused plan changed the store"
            return f"refused: {error}"
        assert snapshot(self.root) == before, "the plan changed the store"
        report = rocketstore.repair(self.root, plan)
        if plan.empty:
            return "nothing to do"
        verdict = report.verdict
        assert verdict is not None
        if not plan.left:
            assert verdict.state == "well", (verdict.state, verdict.counts)
        else:
            assert verdict.state in ("well", "degraded"), (verdict.state, verdict.counts)
        self.check_records(plan)
        with rocketstore.open(self.root, "r") as store:
            found = store.verify()
        assert plan.left or not found.finding_counts, found.finding_counts
        assert rocketstore.repair(self.root, plan).state == "already"
        assert report.undo is not None
        rocketstore.undo_repair(self.root, report.undo)
        after = snapshot(self.root)
        changed = [name for name in before.keys() | after if before.get(name) != after.get(name)]
        assert not changed, f"the undo does not give back {sorted(changed)[:3]}"
        return "well" if not plan.left else "left"

    def check_records(self, plan: rocketstore.RepairPlan) -> None:
        """Raise ``AssertionError`` for a record that was whole and is gone, or whose loss the plan
        did not name."""
        ranges = [one["log"] for one in (*plan.already, *plan.by_repair)]
        content = {path.name: path.read_bytes() for path in _files(self.root / "commitlog")}
        with rocketstore.open(self.root, "r") as store:
            readable = {message.physical_offset for message in store.scan()}
        size = self.segment_nbytes
        first = min((int(name) for name in content if name.isdecimal()), default=0)
        for at, record in self.records.items():
            if at < first:
                continue  # a missing beginning looks like one that has expired
            segment = content.get(formats.offset_to_file_name(at - at % size), b"")
            place = slice(at % size, at % size + len(record))
            if segment[place] == record:
                continue
            assert at not in self.intact, f"the intact record at {at} is gone"
            if at in readable and any(one[place] == segment[place] for one in self.damaged):
                continue  # no checksum covers what was changed
            if at > max(self.named_end, *readable, -1) and not segment[place].strip(b"\0"):
                continue  # it came last, and nothing that is left shows that it was there
            is_named = any(start <= at < stop for start, stop in ranges)
            assert is_named, f"the lost record at {at} is not named"
