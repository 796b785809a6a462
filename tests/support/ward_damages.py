"""Further ways to damage a store, for seeds from ``FIRST_SEED`` on: see ``seeded_ward``."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from rocketstore import formats

#: Seeds below it keep the ways, and so the stores, that they had.
FIRST_SEED = 10_000
Damage = Callable[[Path, random.Random], str]
_UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes
_HEAD = formats.RECORD_HEAD
#: Fields of a record's fixed part that are overwritten: position, bytes, values.
_FIELDS: tuple[tuple[str, int, int, tuple[int, ...]], ...] = (
    ("size", 0, 4, (0, -1, -(2**31), 1, 8, 90, 2**31 - 1, 65536)),
    ("magic", 4, 4, (0, 0x0A23A3DA, formats.BLANK_MAGIC, -626843480)),
    ("body CRC", 8, 4, (0, 1, -1)),
    ("queue id", 12, 4, (-1, 2**31 - 1)),
    ("queue offset", 20, 8, (-1, -(2**63), 2**40)),
    ("log offset", 28, 8, (0, 1, -1, 65536, 2**62)),
    ("flags", 36, 4, (0x10, 0x20, 0x80, -1)),
    ("store time", 56, 8, (0, -1, 2**60)),
    ("body length", 84, 4, (-1, 0, 2**31 - 1, 60_000)),
    ("topic length", 88, 1, (0, -1, 127)),
)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name.isdecimal())


def _overwrite(path: Path, at: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


def _a_record(root: Path, seed: random.Random) -> tuple[Path, int] | None:
    """Return the file and position of a record, found by its magic and size."""
    path = seed.choice(_files(root / "commitlog"))
    content, at, found = path.read_bytes(), 0, []
    while at + 100 < len(content):
        size, magic = struct.unpack_from(">ii", content, at)
        if magic & 0xFFFFFFFF not in (formats.MAGIC_V1 & 0xFFFFFFFF, formats.MAGIC_V2 & 0xFFFFFFFF):
            break
        found.append(at)
        at += max(size, 1)
    return (path, seed.choice(found)) if found else None


def _wrong_field(root: Path, seed: random.Random) -> str:
    place = _a_record(root, seed)
    name, at, nbytes, values = seed.choice(_FIELDS)
    value = seed.choice(values)
    if place is None:
        return "nothing"
    path, position = place
    _overwrite(path, position + at, (value & (2 ** (8 * nbytes) - 1)).to_bytes(nbytes, "big"))
    return f"{name} {value} at {position} of {path.name}"


def _copied_record(root: Path, seed: random.Random) -> str:
    first, second = _a_record(root, seed), _a_record(root, seed)
    if first is None or second is None:
        return "nothing"
    content = first[0].read_bytes()
    size = struct.unpack_from(">i", content, first[1])[0]
    room = second[0].stat().st_size - second[1]
    _overwrite(second[0], second[1], content[first[1] : first[1] + min(size, room)])
    return f"the record at {first[1]} of {first[0].name} stands at {second[1]} of {second[0].name}"


def _two_places(root: Path, seed: random.Random) -> str:
    path = seed.choice(_files(root / "commitlog"))
    size = path.stat().st_size
    if size < 16384:
        return "nothing"
    at = seed.randrange(0, size - 8192, 4096)
    later = seed.randrange(at + 4096, size - 64)
    _overwrite(path, at, bytes(4096))
    _overwrite(path, later, bytes(64))
    return f"zeros at {at} and {later} of {path.name}"


def _no_end(root: Path, _: random.Random) -> str:
    paths = _files(root / "commitlog")
    if len(paths) < 2:
        return "nothing"
    paths[-1].unlink()
    return f"no {paths[-1].name}, the last one"


def _no_beginning(root: Path, _: random.Random) -> str:
    paths = _files(root / "commitlog")
    if len(paths) < 2:
        return "nothing"
    paths[0].unlink()
    return f"no {paths[0].name}, the first one"


def _emptied_segment(root: Path, seed: random.Random) -> str:
    paths = _files(root / "commitlog")
    if len(paths) < 2:
        return "nothing"
    path = seed.choice(paths[1:])
    os.truncate(path, 0)
    return f"{path.name} has 0 bytes"


def _queue_units(root: Path, seed: random.Random) -> str:
    paths = [path for path in _files(root / "consumequeue") if path.stat().st_size >= 100]
    if not paths:
        return "nothing"
    path = seed.choice(paths)
    kind = seed.choice(("beyond", "swapped", "doubled", "negative", "other", "zeros"))
    at, content = _UNIT_NBYTES * seed.randrange(4), path.read_bytes()
    unit, following = content[at : at + 20], content[at + 20 : at + 40]
    made = {
        "beyond": struct.pack(">qiq", 1 << 40, 200, 0),
        "swapped": following + unit,
        "doubled": unit * 2,
        "negative": struct.pack(">qiq", -(2**63), -1, 0),
        "other": struct.pack(">qiq", 17, 120, 0),
        "zeros": bytes(60),
    }[kind]
    _overwrite(path, at, made[: len(content) - at])
    return f"units at {at} of {path.relative_to(root)} are {kind}"


def _whole_queue(root: Path, seed: random.Random) -> str:
    folders = [path for path in (root / "consumequeue").glob("*/*") if path.is_dir()]
    if not folders:
        return "nothing"
    folder = seed.choice(sorted(folders))
    kind = seed.choice(("no folder", "no files", "no topic", "zeros"))
    if kind == "no folder":
        shutil.rmtree(folder)
    elif kind == "no topic":
        shutil.rmtree(folder.parent)
    for path in _files(folder):
        if kind == "no files":
            path.unlink()
        elif kind == "zeros":
            _overwrite(path, 0, bytes(path.stat().st_size))
    return f"{folder.relative_to(root)}: {kind}"


def _other_queue_files(root: Path, seed: random.Random) -> str:
    paths = [*_files(root / "batchconsumequeue"), *_files(root / "consumequeue_ext")]
    if not paths:
        return "nothing"
    path, kind = seed.choice(paths), seed.choice(("gone", "short", "empty", "zero", "noise"))
    if kind == "gone":
        path.unlink()
    elif kind in ("short", "empty"):
        os.truncate(path, path.stat().st_size // 3 if kind == "short" else 0)
    else:
        nbytes = path.stat().st_size if kind == "zero" else min(40, path.stat().st_size)
        _overwrite(path, 0, bytes(nbytes) if kind == "zero" else seed.randbytes(nbytes))
    return f"{path.relative_to(root)} is {kind}"


def _index_content(root: Path, seed: random.Random) -> str:
    paths = [path for path in _files(root / "index") if path.stat().st_size >= 400]
    if not paths:
        return "nothing"
    path = seed.choice(paths)
    kind = seed.choice(("count", "slots", "offset", "loop", "length", "times"))
    size = path.stat().st_size
    entries = formats.INDEX_HEADER.nbytes + 4 * 50
    if kind == "count":
        _overwrite(path, 36, seed.choice((0, -1, 2**31 - 1)).to_bytes(4, "big", signed=True))
    elif kind == "slots":
        _overwrite(path, 40, seed.choice((b"\xff" * 40, b"\x7f" * 40, bytes(40))))
    elif kind == "offset" and size > entries + 40:
        _overwrite(path, entries + 24, (1 << 40).to_bytes(8, "big"))
    elif kind == "loop" and size > entries + 80:
        _overwrite(path, entries + 36, (2).to_bytes(4, "big"))
        _overwrite(path, entries + 56, (1).to_bytes(4, "big"))
    elif kind == "length":
        os.truncate(path, seed.choice((0, 40, size - 1, size + 20)))
    else:
        _overwrite(path, 0, seed.choice((b"\xff" * 16, bytes(16), b"\x7f" * 16)))
    return f"{path.relative_to(root)}: wrong {kind}"


def _odd_name(root: Path, seed: random.Random) -> str:
    name = seed.choice(
        ("commitlog/0", "commitlog/99999999999999999999", "commitlog/-0000000000000000000",
         "consumequeue/T/abc/x", "consumequeue/.hidden", "index/notes", "index/20261121.tmp")
    )  # fmt: skip
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(b"")
    return f"a file {name}"


def _abort_content(root: Path, seed: random.Random) -> str:
    (root / "abort").write_bytes(seed.choice((b"", b"\0" * 1000, b"4711", b"\xff" * 16)))
    return "abort with content"


def _table_content(root: Path, seed: random.Random) -> str:
    paths = sorted((root / "config").glob("*.json")) if (root / "config").is_dir() else []
    if not paths:
        return "nothing"
    path = seed.choice(paths)
    kind = seed.choice(("empty", "deep", "mark", "number", "gone"))
    if kind == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {"empty": b"", "deep": b"[" * 200_000, "mark": b"\xef\xbb\xbf" + path.read_bytes(),
             "number": b'{"offsetTable":{"T@g":{0:' + b"9" * 5000 + b"}}}"}[kind]
        )  # fmt: skip
    return f"config/{path.name}: {kind}"


def _far_offsets(root: Path, seed: random.Random) -> str:
    path = root / "config" / "consumerOffset.json"
    queues = sorted((root / "consumequeue").glob("*/*"))
    if not queues:
        return "nothing"
    queue = seed.choice(queues)
    path.parent.mkdir(exist_ok=True)
    offset = seed.choice((-1, 10**6, 2**62))
    path.write_text(f'{{"offsetTable":{{"{queue.parent.name}@g":{{{queue.name}:{offset}}}}}}}')
    return f"an offset {offset} of {queue.parent.name[:20]}/{queue.name}"


MORE_DAMAGES: tuple[Damage, ...] = (
    _wrong_field, _wrong_field, _copied_record, _two_places, _no_end, _no_beginning,
    _emptied_segment, _queue_units, _whole_queue, _other_queue_files, _index_content, _odd_name,
    _abort_content, _table_content, _far_offsets,
)  # fmt: skip
