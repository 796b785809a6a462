"""The promises for a store with exactly one thing wrong, see ``kinds``.

With several things wrong, the promises may contradict each other, so only the general ones hold.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from store_fuzz.bases import Base
from store_fuzz.mutations import Mutation
from store_fuzz.records import segments
from store_fuzz.tree import Tree

_MARKS = ("abort", "checkpoint", "rocketstore.state")
#: A broker reads the older file if the newer one is not a table.
_BACKUP = ".bak"


class Wrong(Enum):
    """What is wrong with the store."""

    LOG_GONE = "the whole log is missing"
    HOLE = "a segment is missing"
    END_GONE = "the last segment is missing, after a clean stop"
    LOG_FORBIDDEN = "a segment has no read permission"
    DERIVED_FORBIDDEN = "a queue or index file has no read permission"
    MISNAMED = "segments have wrong names"
    ODD_MARK = "a folder or FIFO is in place of a mark"
    TABLE = "a table of the broker is corrupt"


@dataclass(frozen=True)
class Promised:
    """The one thing that is wrong, and its file."""

    wrong: Wrong
    path: str

    @property
    def refuses_everything(self) -> bool:
        """Whether no mode opens the store."""
        return self.wrong is Wrong.LOG_GONE

    @property
    def refuses_writing(self) -> bool:
        """Whether writing modes must not open it."""
        return self.wrong in {
            *(Wrong.LOG_GONE, Wrong.HOLE, Wrong.END_GONE, Wrong.LOG_FORBIDDEN, Wrong.MISNAMED),
        }

    @property
    def is_read(self) -> bool:
        """Whether mode ``"r"`` must open it."""
        return self.wrong in {Wrong.HOLE, Wrong.END_GONE, Wrong.LOG_FORBIDDEN, Wrong.ODD_MARK}

    @property
    def is_damage(self) -> bool:
        """Whether the report's damage must name the file."""
        return self.wrong in {Wrong.HOLE, Wrong.END_GONE, Wrong.LOG_FORBIDDEN}

    @property
    def is_found(self) -> bool:
        """Whether ``verify`` must report a finding."""
        return self.wrong is not Wrong.ODD_MARK


def promised(base: Base, tree: Tree, mutations: list[Mutation]) -> Promised | None:
    """Return the promise for a damaged store, ``None`` if only the general ones hold."""
    if len(mutations) != 1 or tree == base.tree or not base.originals:
        return None
    (mutation,) = mutations
    op, path = mutation["op"], mutation["path"]
    before, after = segments(base.tree), segments(tree)
    if not after and not segments(tree, forbidden=True):
        is_gone = op in {"delete", "empty", "rename"}
        return Promised(Wrong.LOG_GONE, "commitlog") if is_gone else None
    if op == "delete" and path.startswith("commitlog/"):
        return _without(base, before, after, path)
    if op == "forbid":
        if path.startswith("commitlog/") and len(path) == 30 and after:
            return Promised(Wrong.LOG_FORBIDDEN, path)
        folder = path.partition("/")[0]
        derived = folder in {"consumequeue", "index"} and path.rpartition("/")[2].isdigit()
        return Promised(Wrong.DERIVED_FORBIDDEN, path) if derived else None
    if op in {"exchange", "shift"} and path.startswith("commitlog"):
        return Promised(Wrong.MISNAMED, path)
    if op == "rename" and path.startswith("commitlog/") and len(before) == 1 and after:
        return Promised(Wrong.MISNAMED, path)
    if op in {"fifo", "folder"} and path in _MARKS:
        return Promised(Wrong.ODD_MARK, path)
    if op == "forge" and path.startswith("config/") and path.endswith(".json"):
        is_alone = path + _BACKUP not in tree
        is_broken = bytes.fromhex(mutation["hex"]) in {b"{", b"\0" * 64}
        return Promised(Wrong.TABLE, path) if is_alone and is_broken else None
    return None


def _without(
    base: Base, before: dict[int, bytes], after: dict[int, bytes], path: str
) -> Promised | None:
    number = int(path[10:]) if path[10:].isdigit() else -1
    if number not in before or number in after:
        return None
    size = base.options["mapped_file_size_commit_log"]
    held = [o for o in base.originals if number <= o.offset < number + size]
    if number > min(after, default=0) and number < max(after):
        return Promised(Wrong.HOLE, path)
    if number > max(after) and held and "abort" not in base.tree:
        return Promised(Wrong.END_GONE, path)
    return None


def is_named(root: Path, path: str, damaged: list[Any]) -> bool:
    """Return whether a report's damage names the file."""
    with contextlib.suppress(ValueError):
        return any(Path(one.path).relative_to(root).as_posix() == path for one in damaged)
    return False
