"""Kinds of damage that users met: each removes or changes one thing of an undamaged store.

``promises`` says what must hold for each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from store_fuzz.records import Original, segments
from store_fuzz.tree import Tree

Mutation = dict[str, Any]
_MARKS = ("abort", "checkpoint", "rocketstore.state")
_TIMES = (0, 1, -1, 1_000, 4_000_000_000_000, 2**62, 2**63 - 1, -(2**63))
_BROKEN_TABLES = (b"", b"{", b"\0" * 64, b"[]", b'{"a":', b"\xff\xfe{}")


def draw(rng: random.Random, tree: Tree, originals: list[Original]) -> Mutation | None:
    """Return a mutation of a random kind, ``None`` if it does not apply to the store."""
    kind: Callable[[random.Random, Tree, list[Original]], Mutation | None] = rng.choice(_KINDS)
    return kind(rng, tree, originals)


def _logs(tree: Tree) -> list[str]:
    return [f"commitlog/{start:020d}" for start in sorted(segments(tree))]


def _log_gone(rng: random.Random, tree: Tree, _: list[Original]) -> Mutation | None:
    """Remove, rename or empty the log's folder, as with a disk that is not mounted."""
    return rng.choice(
        (
            {"op": "delete", "path": "commitlog"},
            {"op": "rename", "path": "commitlog", "to": "elsewhere"},
            {"op": "empty", "path": "commitlog"},
        )
    )


def _segment_gone(rng: random.Random, tree: Tree, _: list[Original]) -> Mutation | None:
    logs = _logs(tree)
    path = rng.choice((logs[-1], rng.choice(logs))) if logs else ""
    return {"op": "delete", "path": path} if path else None


def _unreadable(rng: random.Random, tree: Tree, _: list[Original]) -> Mutation | None:
    logs = _logs(tree)
    others = [p for p, e in tree.items() if e.kind == "file" and not p.startswith("commitlog")]
    paths = logs if logs and (rng.random() < 0.6 or not others) else others
    return {"op": "forbid", "path": rng.choice(paths)} if paths else None


def _misnamed(rng: random.Random, tree: Tree, _: list[Original]) -> Mutation | None:
    """Exchange the names of two segments, rename one, or shift all names."""
    logs = _logs(tree)
    if not logs:
        return None
    path, other = rng.choice(logs), rng.choice(logs)
    if path != other and rng.random() < 0.4:
        return {"op": "exchange", "path": path, "other": other}
    size = len(tree[path].content)
    if rng.random() < 0.5:
        return {"op": "shift", "path": "commitlog", "by": rng.choice((1, 2, 5)) * size}
    by = rng.choice((1, 2, 50)) * size
    return {"op": "rename", "path": logs[-1], "to": f"commitlog/{int(logs[-1][10:]) + by:020d}"}


def _odd_kind(rng: random.Random, tree: Tree, _: list[Original]) -> Mutation | None:
    return {"op": rng.choice(("fifo", "folder")), "path": rng.choice(_MARKS)}


def _two_places(rng: random.Random, tree: Tree, originals: list[Original]) -> Mutation | None:
    """Overwrite parts of two records of one segment."""
    logs = _logs(tree)
    if not logs:
        return None
    path = rng.choice(logs)
    start, size = int(path[10:]), len(tree[path].content)
    inside = [o for o in originals if start <= o.offset < start + size]
    if len(inside) < 5:
        return None
    places = []
    for original in sorted(rng.sample(inside, 2), key=lambda o: o.offset):
        at = original.offset - start + rng.randrange(len(original.raw) // 2)
        places.append([at, rng.choice((1, 4, 8, 40, 100))])
    return {"op": "places", "path": path, "places": places, "seed": rng.getrandbits(32)}


def _tables(rng: random.Random, tree: Tree, _: list[Original]) -> Mutation | None:
    paths = [p for p in tree if p.startswith("config/") and tree[p].kind == "file"]
    if not paths:
        return None
    return {"op": "forge", "path": rng.choice(paths), "hex": rng.choice(_BROKEN_TABLES).hex()}


def _checkpoint_times(rng: random.Random, tree: Tree, _: list[Original]) -> Mutation | None:
    value = (rng.choice(_TIMES) % 2**64).to_bytes(8, "big").hex()
    return {"op": "write", "path": "checkpoint", "at": rng.choice((0, 8, 16, 24, 32)), "hex": value}


_KINDS = (
    *(_log_gone, _segment_gone, _segment_gone, _unreadable, _unreadable, _misnamed, _odd_kind),
    *(_two_places, _two_places, _tables, _checkpoint_times),
)
