"""Damage to a store's directory; each is a JSON object, so that a case can be printed and
reproduced."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from store_fuzz import kinds
from store_fuzz.records import Original
from store_fuzz.tree import FOLDER, Entry, Tree

Mutation = dict[str, Any]
_NUMBERS = (0, 1, -1, 7, 8, 20, 40, 90, 91, 127, 128, 255, 256, 32767, -32768, 65535)
_NUMBERS += (2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63))
#: Positions and widths in a record's head.
_HEAD_FIELDS = ((0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 8), (28, 8), (36, 4), (40, 8))
_FORGED = (
    b"0",
    b"\0",
    b"{",
    b"[" * 5000,
    b"\xff\xfe",
    b'{"dataVersion":{"counter":' + b"9" * 5000 + b"}}",
    b"{0:1,}",
)


# --- applying -----------------------------------------------------------------------------------


def apply(tree: Tree, mutation: Mutation) -> Tree:
    """Return the tree with one mutation applied; unchanged if the mutation's path is missing."""
    changed = dict(tree)
    name, path = mutation["op"], mutation["path"]
    entry = tree.get(path)
    if name in _BYTES:
        if entry is not None and entry.kind == "file":
            content = _BYTES[name](bytearray(entry.content), mutation, tree)
            changed[path] = replace(entry, content=bytes(content))
        return changed
    _PATHS[name](changed, mutation)
    return changed


def _write(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    new = bytes.fromhex(m["hex"])[: max(0, len(content) - m["at"])]
    content[m["at"] : m["at"] + len(new)] = new
    return content


def _flip(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    if m["at"] < len(content):
        content[m["at"]] ^= 1 << m["bit"]
    return content


def _zero(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    stop = min(m["at"] + m["n"], len(content))
    content[m["at"] : stop] = bytes(max(0, stop - m["at"]))
    return content


def _noise(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    stop = min(m["at"] + m["n"], len(content))
    content[m["at"] : stop] = random.Random(m["seed"]).randbytes(max(0, stop - m["at"]))
    return content


def _truncate(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    return content[: m["n"]]


def _extend(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    return content + bytes([m["byte"]]) * m["n"]


def _insert(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    return content[: m["at"]] + bytes([m["byte"]]) * m["n"] + content[m["at"] :]


def _remove(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    return content[: m["at"]] + content[m["at"] + m["n"] :]


def _copy(content: bytearray, m: Mutation, tree: Tree) -> bytearray:
    source = tree.get(m["source"], FOLDER).content[m["from"] : m["from"] + m["n"]]
    source = source[: max(0, len(content) - m["at"])]
    content[m["at"] : m["at"] + len(source)] = source
    return content


def _swap(content: bytearray, m: Mutation, _: Tree) -> bytearray:
    first, second, n = m["at"], m["other"], m["n"]
    if first + n <= second and second + n <= len(content):
        a, b = content[first : first + n], content[second : second + n]
        content[first : first + n], content[second : second + n] = b, a
    return content


def _forge(_: bytearray, m: Mutation, __: Tree) -> bytearray:
    return bytearray(bytes.fromhex(m["hex"]))


def _places(content: bytearray, m: Mutation, tree: Tree) -> bytearray:
    for at, n in m["places"]:
        content = _noise(content, {"at": at, "n": n, "seed": m["seed"]}, tree)
    return content


def _below(tree: Tree, path: str) -> list[str]:
    return [name for name in tree if name == path or name.startswith(path + "/")]


def _delete(tree: Tree, m: Mutation) -> None:
    for name in _below(tree, m["path"]):
        del tree[name]


def _empty(tree: Tree, m: Mutation) -> None:
    for name in _below(tree, m["path"]):
        if name != m["path"]:
            del tree[name]


def _forbid(tree: Tree, m: Mutation) -> None:
    entry = tree.get(m["path"])
    if entry is not None and entry.kind == "file":
        tree[m["path"]] = replace(entry, forbidden=True)


def _shift(tree: Tree, m: Mutation) -> None:
    """Shift the offsets in the names of a folder's files."""
    for name in sorted(_below(tree, m["path"]), reverse=True):
        folder, _, last = name.rpartition("/")
        if folder == m["path"] and last.isdigit():
            tree[f"{folder}/{int(last) + m['by']:020d}"] = tree.pop(name)


def _duplicate(tree: Tree, m: Mutation) -> None:
    for name in _below(tree, m["path"]):
        tree[m["to"] + name[len(m["path"]) :]] = tree[name]


def _rename(tree: Tree, m: Mutation) -> None:
    moved = {m["to"] + name[len(m["path"]) :]: tree[name] for name in _below(tree, m["path"])}
    _delete(tree, m)
    tree.update(moved)


def _exchange(tree: Tree, m: Mutation) -> None:
    first, second = tree.get(m["path"]), tree.get(m["other"])
    if first and second and first.kind == second.kind == "file":
        tree[m["path"]], tree[m["other"]] = second, first


def _link(tree: Tree, m: Mutation) -> None:
    _delete(tree, m)
    tree[m["path"]] = Entry("link", target=m["target"])


def _folder(tree: Tree, m: Mutation) -> None:
    _delete(tree, m)
    tree[m["path"]] = FOLDER


def _fifo(tree: Tree, m: Mutation) -> None:
    _delete(tree, m)
    tree[m["path"]] = Entry("fifo")


def _file(tree: Tree, m: Mutation) -> None:
    _delete(tree, m)
    tree[m["path"]] = Entry("file", bytes.fromhex(m["hex"]))


_BYTES: dict[str, Callable[[bytearray, Mutation, Tree], bytearray]] = {
    "write": _write,
    "flip": _flip,
    "zero": _zero,
    "noise": _noise,
    "truncate": _truncate,
    "extend": _extend,
    "insert": _insert,
    "remove": _remove,
    "copy": _copy,
    "swap": _swap,
    "forge": _forge,
    "places": _places,
}
_PATHS: dict[str, Callable[[Tree, Mutation], None]] = {
    "delete": _delete,
    "empty": _empty,
    "forbid": _forbid,
    "shift": _shift,
    "duplicate": _duplicate,
    "rename": _rename,
    "exchange": _exchange,
    "link": _link,
    "folder": _folder,
    "fifo": _fifo,
    "file": _file,
}


# --- choosing -----------------------------------------------------------------------------------


class Chooser:
    """Draws mutations for a tree.

    Parameters
    ----------
    rng : random.Random
    originals : list of Original
        The log's records: some mutations change a field of one.
    outside : str
        Target of links that leave the root.
    """

    def __init__(self, rng: random.Random, originals: list[Original], outside: str) -> None:
        self._rng = rng
        self._originals = originals
        self._outside = outside

    def draw(self, tree: Tree) -> Mutation:
        """Return one mutation."""
        if self._rng.random() < 0.3:
            met = kinds.draw(self._rng, tree, self._originals)
            if met is not None:
                return met
        kind = self._rng.random()
        if kind < 0.3 and self._originals:
            found = self._aim_at_record(tree)
            if found is not None:
                return found
        if kind < 0.75:
            return self._bytes(tree)
        return self._path(tree)

    def _choose_file(self, tree: Tree) -> str:
        groups: dict[str, list[str]] = {}
        for path, entry in tree.items():
            if entry.kind == "file":
                groups.setdefault(path.partition("/")[0], []).append(path)
        names = sorted(groups)
        if not names:
            return "checkpoint"
        weight = {"commitlog": 6, "consumequeue": 5, "index": 4, "checkpoint": 2}
        weight |= {"rocketstore.state": 2, "consumequeue_ext": 2}
        group = self._rng.choices(names, [weight.get(name, 1) for name in names])[0]
        return self._rng.choice(groups[group])

    def _number(self, width: int) -> str:
        value = self._rng.choice((*_NUMBERS, self._rng.getrandbits(8 * width)))
        return (value % (1 << 8 * width)).to_bytes(width, "big").hex()

    def _aim_at_record(self, tree: Tree) -> Mutation | None:
        """Damage one record: set a field, zero a range, flip a bit, or copy another one over it."""
        rng = self._rng
        tail = rng.random() < 0.3
        record = rng.choice(self._originals[-4:] if tail else self._originals)
        found = [
            path
            for path, entry in tree.items()
            if path.startswith("commitlog/")
            and path[10:].isdigit()
            and 0 <= record.offset - int(path[10:]) < len(entry.content)
        ]
        if not found:
            return None
        path = found[0]
        at = record.offset - int(path[10:])
        kind = rng.randrange(5)
        if kind == 0:
            position, width = rng.choice(_HEAD_FIELDS)
            return {"op": "write", "path": path, "at": at + position, "hex": self._number(width)}
        if kind == 1:
            position, width = rng.choice(
                (
                    (record.body.start - 4, 4),
                    (record.body.stop, 1),
                    (record.topic.stop, 2),
                    (record.topic.start, 1),
                )
            )
            return {"op": "write", "path": path, "at": at + position, "hex": self._number(width)}
        if kind == 2:
            start = rng.randrange(len(record.raw))
            n = rng.choice((1, 4, 8, 64, 512, 4096, len(record.raw) - start))
            return {"op": "zero", "path": path, "at": at + start, "n": n}
        if kind == 3:
            position = at + rng.randrange(len(record.raw))
            return {"op": "flip", "path": path, "at": position, "bit": rng.randrange(8)}
        other = rng.choice(self._originals)
        base = max((int(p[10:]) for p in tree if _is_segment(p, other.offset)), default=0)
        source = f"commitlog/{base:020d}"
        n = len(other.raw)
        return {
            **{"op": "copy", "path": path, "at": at, "n": n},
            **{"source": source, "from": other.offset - base},
        }

    def _bytes(self, tree: Tree) -> Mutation:
        rng = self._rng
        path = self._choose_file(tree)
        size = len(tree[path].content) if path in tree else 0
        at = rng.randrange(size) if size else 0
        if rng.random() < 0.3:
            at -= at % 20 if path.startswith("consumequeue") else at % 4
        at = min(at, 47) if rng.random() < 0.25 else at
        n = min(rng.choice((1, 4, 8, 20, 100, 512, 4096, 65536)), max(size, 1))
        if rng.random() < 0.1:
            return {"op": "forge", "path": path, "hex": rng.choice(_FORGED).hex()}
        return rng.choice(
            (
                {"op": "write", "path": path, "at": at, "hex": self._number(rng.choice((4, 8)))},
                {"op": "flip", "path": path, "at": at, "bit": rng.randrange(8)},
                {"op": "zero", "path": path, "at": at, "n": n},
                {"op": "zero", "path": path, "at": at - at % 512, "n": 512},
                {"op": "zero", "path": path, "at": at, "n": size},
                {"op": "noise", "path": path, "at": at, "n": n, "seed": rng.getrandbits(32)},
                {"op": "truncate", "path": path, "n": rng.choice((0, 1, at, max(0, size - 1)))},
                {"op": "extend", "path": path, "n": n, "byte": rng.choice((0, 255))},
                {"op": "insert", "path": path, "at": at, "n": n, "byte": 0},
                {"op": "remove", "path": path, "at": at, "n": n},
                self._copied(tree, path, at, n),
                {"op": "swap", "path": path, "at": at, "other": min(at + 2 * n, size), "n": n},
            )
        )

    def _copied(self, tree: Tree, path: str, at: int, n: int) -> Mutation:
        source = self._choose_file(tree)
        size = len(tree[source].content) if source in tree else 0
        start = self._rng.randrange(size) if size else 0
        return {"op": "copy", "path": path, "at": at, "n": n, "source": source, "from": start}

    def _path(self, tree: Tree) -> Mutation:
        rng = self._rng
        path = self._choose_file(tree)
        if rng.random() < 0.2:
            path = rng.choice([name for name, entry in tree.items() if entry.kind == "folder"])
        to = self._new_name(tree, path)
        same = [name for name in tree if PurePosixPath(name).parent == PurePosixPath(path).parent]
        other = rng.choice(same) if same and rng.random() < 0.6 else self._choose_file(tree)
        if other.partition("/")[0] != path.partition("/")[0]:
            other = path  # (no real store has one file as segment and checkpoint)
        target = rng.choice((other, "../" * path.count("/") + other, path, self._outside, "none"))
        return rng.choice(
            (
                {"op": "delete", "path": path},
                {"op": "delete", "path": path},
                {"op": "duplicate", "path": path, "to": to},
                {"op": "rename", "path": path, "to": to},
                {"op": "exchange", "path": path, "other": other},
                {"op": "link", "path": path, "target": target},
                {"op": "link", "path": to, "target": target},
                {"op": rng.choice(("folder", "fifo")), "path": rng.choice((path, to))},
                {"op": "file", "path": to, "hex": rng.choice(("", "00", "ff" * 40))},
            )
        )

    def _new_name(self, tree: Tree, path: str) -> str:
        """Return a name beside ``path``: the next offset, an odd name, a name of another folder."""
        rng = self._rng
        folder, _, name = path.rpartition("/")
        folder = folder + "/" if folder else ""
        size = len(tree[path].content) if path in tree else 0
        names = [name + ".bak", name.lstrip("0") or "0", ".DS_Store", "-1", "abc", "..x"]
        if name.isdigit():
            number = int(name)
            names += [f"{number + step:020d}" for step in (1, -1, 17) if number + step >= 0]
            names += [f"{number + size:020d}", f"{number + 2 * size:020d}", "9" * 20]
            names += [str(number + 1), str(number + 7), "99999999999", "007"]
        names += [other.rpartition("/")[2] for other in rng.sample(sorted(tree), 2)]
        return folder + rng.choice(names)


def _is_segment(path: str, offset: int) -> bool:
    name = path.removeprefix("commitlog/")
    return path.startswith("commitlog/") and name.isdigit() and int(name) <= offset
