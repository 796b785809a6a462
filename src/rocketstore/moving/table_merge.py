"""The tables of a merged store: those of both, with consumer offsets at their new places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.config_managers.files import (
    BACKUP_SUFFIX,
    CONSUMER_OFFSETS_FILE,
    DELAY_OFFSETS_FILE,
    config_path,
    read_config_file,
    read_table,
    write_config_file,
)
from rocketstore.files.durable import list_folder, make_directories, write_file
from rocketstore.moving.new_store import OF_OTHER_FILES
from rocketstore.moving.numbering import Numbering, Queue

_OFFSETS = "offsetTable"
_PULLED = "pullOffsetTable"
_OF_A_GROUP = "@"
#: Delay level n waits in queue n - 1.
_FIRST_LEVEL = 1
#: (group, queue) to offset; the queue of a group's offsets, or "" for delay levels.
Offsets = dict[tuple[str, Queue], int]

_VERSION = "dataVersion"


def committed_offsets(root: Path) -> dict[Queue, set[int]]:
    """Return the queue offsets from which consumers and the delivery of delays go on."""
    found: dict[Queue, set[int]] = defaultdict(set)
    for name in (_OFFSETS, _PULLED):
        for (_, queue), offset in _offsets(root, name).items():
            found[queue].add(offset)
    for (_, queue), offset in _delays(root).items():
        found[queue].add(offset)
    return found


def _table(root: Path, file: str, name: str) -> dict[Any, Any]:
    document = read_config_file(config_path(root, file), root).content or {}
    table = document.get(name)
    return table if isinstance(table, dict) else {}


def _offsets(root: Path, name: str) -> Offsets:
    found: Offsets = {}
    for key, offsets in _table(root, CONSUMER_OFFSETS_FILE, name).items():
        topic, _, group = str(key).partition(_OF_A_GROUP)
        for queue_id, offset in _numbers(offsets):
            found[group, (topic, queue_id)] = offset
    return found


def _delays(root: Path) -> Offsets:
    return {
        ("", (formats.TOPIC_SCHEDULE, level - _FIRST_LEVEL)): offset
        for level, offset in _numbers(_table(root, DELAY_OFFSETS_FILE, _OFFSETS))
    }


def _numbers(table: Any) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a table from numbers, as text or not, to numbers."""
    for key, value in table.items() if isinstance(table, dict) else ():
        text = str(key)
        if text.isascii() and text.isdigit() and isinstance(value, int):
            yield int(text), value


def merge_tables(
    roots: tuple[Path, Path], place: Path, numbering: Numbering, notes: list[str]
) -> None:
    """Write the tables below ``config``; where both stores have an entry, the first one's counts.

    Consumer and delay offsets get the lowest place before which the group has consumed all.
    """
    names = {
        one.removesuffix(BACKUP_SUFFIX)
        for root in roots
        for one in list_folder(root / formats.CONFIG_DIR)
    }
    for name in sorted(names):
        if any(config_path(root, name).is_dir() for root in roots):
            notes.append(f"{formats.CONFIG_DIR}/{name} is a folder and is left out")
        elif name in OF_OTHER_FILES:
            notes.append(f"{formats.CONFIG_DIR}/{name} belongs to files that are not copied")
        elif name.endswith(".json"):
            _merge_table(roots, place, name, numbering, notes)
        else:
            _take_first(roots, place, name, notes)


def _take_first(roots: tuple[Path, Path], place: Path, name: str, notes: list[str]) -> None:
    contents = [read_table(config_path(root, name), root) for root in roots]
    first = next((content for content in contents if content is not None), None)
    if first is None:
        return
    if None not in contents and contents[0] != contents[1]:
        notes.append(f"{formats.CONFIG_DIR}/{name} differs; that of {roots[0]} was taken")
    target = config_path(place, name)
    make_directories(target.parent, place)
    write_file(target, first)


def _merge_table(
    roots: tuple[Path, Path], place: Path, name: str, numbering: Numbering, notes: list[str]
) -> None:
    documents = [read_config_file(config_path(root, name), root).content or {} for root in roots]
    merged: dict[str, Any] = {**documents[1], **documents[0]}
    count = 0
    for key, first in documents[0].items():
        second = documents[1].get(key)
        if key != _VERSION and isinstance(first, dict) and isinstance(second, dict):
            merged[key] = {**second, **first}
            count += sum(1 for one in first if one in second and first[one] != second[one])
    if name == CONSUMER_OFFSETS_FILE:
        count = 0
        for key in (_OFFSETS, _PULLED):
            if key in merged:
                merged[key] = _grouped(_placed(roots, partial(_offsets, name=key),
                                               numbering))  # fmt: skip
    elif name == DELAY_OFFSETS_FILE:
        count = 0
        merged[_OFFSETS] = {
            str(queue_id + _FIRST_LEVEL): offset
            for (_, (_, queue_id)), offset in _placed(roots, _delays, numbering).items()
        }
    if count:
        notes.append(
            f"{formats.CONFIG_DIR}/{name}: {count} entries differ; those of {roots[0]} were taken"
        )
    write_config_file(config_path(place, name), place, merged)


def _placed(
    roots: tuple[Path, Path], read: Callable[[Path], Offsets], numbering: Numbering
) -> Offsets:
    first, second = (read(root) for root in roots)
    found: Offsets = {}
    for key in {**first, **second}:
        offset = numbering.place_of(key[1], (first.get(key), second.get(key)))
        if offset is not None:
            found[key] = offset
    return found


def _grouped(offsets: Offsets) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = defaultdict(dict)
    for (group, (topic, queue_id)), offset in offsets.items():
        table[f"{topic}{_OF_A_GROUP}{group}"][str(queue_id)] = offset
    return dict(table)
