"""The rooms of the package: what each is for, and what it may import.

``test_house.py`` holds the code to this table, and ``docs/architecture.md`` is generated from it.
"""

from __future__ import annotations

from typing import NamedTuple

#: Modules that stand on the ground floor, beside the folders ``display``, ``_native`` and
#: ``_reference``; a room that imports ``ground`` imports any of them.
GROUND = frozenset(
    {
        *("formats", "errors", "status", "dialect", "config", "record_filters", "arguments"),
        "version",
        *("lock_order", "command_start", "kernels", "message", "inner_batch"),
        *("display", "_native", "_reference"),
    }
)


class Room(NamedTuple):
    """What a room is for (the docstring of its package), and the rooms that it may import."""

    charter: str
    may_import: frozenset[str]


def _room(charter: str, may_import: str) -> Room:
    return Room(charter, frozenset(may_import.split()))


#: Lowest first. ``ground`` is no folder: see ``GROUND``.
ROOMS: dict[str, Room] = {
    "files": _room(
        "Files on disk and their mappings: created atomically, mapped, synced, rolled, deleted.",
        "ground",
    ),
    "services": _room("Threads that run a step repeatedly, and ways to wake and wait.", "ground"),
    "filter": _room("Message filters: what a consumer subscribes to.", "ground"),
    "log": _room(
        "The commit log: records by offset, scans, appending, allocation ahead of the writer.",
        "ground files services",
    ),
    "queues": _room(
        "Consume queues of every type: units, files, folders, and the table of all queues.",
        "ground files",
    ),
    "index": _room("Index files: geometry, entries, rolling, lookups.", "ground files"),
    "directory": _room(
        "Everything else in a store's directory: paths, lock, checkpoint, state file, foreign "
        "parts.",
        "ground files",
    ),
    "config_managers": _room(
        "The broker's tables: topics, consumer groups and offsets, delay offsets, "
        "consumer filters.",
        "ground files filter",
    ),
    "survey": _room(
        "Detect sizes, RocketMQ version and losses from a store's files before it is opened.",
        "ground files log queues index directory config_managers",
    ),
    "flush": _room(
        "Flushing the log to disk, and the puts that wait for it.", "ground files services log"
    ),
    "dispatch": _room(
        "Building queues and index from the log.", "ground files services log queues index"
    ),
    "recovery": _room(
        "Find the log's valid end, truncate a torn write, and bring the index in line "
        "with the log.",
        "ground files log queues index directory survey",
    ),
    "cleaning": _room(
        "Find expired files and delete them.", "ground files services log queues index"
    ),
    "query": _room(
        "Reading from a store: by offset, queue, key and time.",
        "ground files filter log queues index",
    ),
    "verify": _room(
        "Check every record, unit and index entry against each other; read-only.",
        "ground files log queues index directory config_managers survey dispatch",
    ),
    "sources": _room(
        "A log as byte ranges for many workers, on disks and object stores.",
        "ground files log directory survey",
    ),
    "store": _room(
        "An open store: opening a directory, its parts and services, and the public class.",
        "ground files services filter log queues index directory config_managers survey flush "
        "dispatch recovery cleaning query verify",
    ),
    "arrow": _room("Messages as Arrow tables and Parquet files.", "ground files query sources"),
    "repair": _room(
        "Repairs a damaged store, on explicit request only.",
        "ground files log queues index directory survey recovery verify store",
    ),
    "spark": _room(
        "RocketMQ store directories in PySpark: a data source, streams, a sink, and jobs.",
        "ground files log queues index directory survey dispatch query verify sources store arrow",
    ),
    "testing": _room(
        "Helpers for tests of programs that use rocketstore: pytest fixtures and "
        "``check_invariants``.",
        "ground survey store",
    ),
    "cli": _room(
        "The command line: ``rocketstore COMMAND PATH``.",
        "ground files filter log queues directory config_managers survey cleaning query verify "
        "store repair spark",
    ),
}

#: Rooms inside ``cli`` and ``spark``, and what each may import of its neighbours.
INNER_ROOMS: dict[str, dict[str, str]] = {
    "cli": {
        "app": "bench commands common demo spark",
        "bench": "common",
        "commands": "common store_facts",
        "demo": "common",
        "spark": "common",
        "store_facts": "common",
        "common": "",
    },
    "spark": {
        "source": "base reading sink stream",
        "jobs": "base reading sink",
        "stream": "base reading",
        "sink": "base",
        "reading": "base",
        "base": "",
    },
}

#: Folders of ``src/_native``: what each may include and cimport.
NATIVE_ROOMS: dict[str, str] = {
    "base": "",
    "files": "base",
    "record": "base files",
    "index": "base files",
    "log": "base files record",
    "flush": "base files log",
    "staging": "base files record log",
    "queues": "base files record",
    "query": "base files record index queues",
    "dispatch": "base files record queues index",
    "passes": "base files record queues dispatch",
    "columns": "base files record passes",
}

#: The most floors that the rooms may make.
MAX_FLOORS = 9


def room_of(module: str) -> str:
    """Room of ``rocketstore.x.y``; ``ground`` for modules without one, ``""`` for the face."""
    parts = module.split(".")
    if len(parts) == 1:
        return ""
    return "ground" if parts[1] in GROUND else parts[1]


def floors(rooms: dict[str, frozenset[str]]) -> dict[str, int]:
    """Floor of each room, from 1: one above the highest that it imports."""
    found: dict[str, int] = {"ground": 1}

    def floor(name: str) -> int:
        if name not in found:
            found[name] = 1 + max((floor(other) for other in rooms[name]), default=0)
        return found[name]

    for name in rooms:
        floor(name)
    return found
