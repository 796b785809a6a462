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
        *("version", "sql92_program", "transaction_records", "timer_rules", "message_copy"),
        *("lock_order", "command_start", "kernels", "message", "inner_batch", "body_codec"),
        *("display", "broker_file", "_native", "_reference"),
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
        "ground files filter",
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
    "delay": _room(
        "Delayed messages: which are due, their delivery exactly once, and reports.",
        "ground files services log queues config_managers",
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
    "transaction": _room(
        "Transactions: half messages, the decisions about them, and the checks of undecided ones.",
        "ground services log config_managers query",
    ),
    "consumer": _room(
        "Consumers, and reads that wait for messages.",
        "ground services log queues dispatch query",
    ),
    "timer": _room(
        "Messages with a delivery time: the timer wheel, its log and its checkpoint; read-only.",
        "ground files",
    ),
    "verify": _room(
        "Check every record, unit and index entry against each other; read-only.",
        "ground files log queues index directory config_managers survey dispatch timer",
    ),
    "sources": _room(
        "A log as byte ranges for many workers, on disks and object stores.",
        "ground files log directory survey",
    ),
    "statistics": _room(
        "Figures of an open store: put times, and texts as RocketMQ writes them.", ""
    ),
    "store": _room(
        "An open store: opening a directory, its parts and services, and the public class.",
        "ground files services filter log queues index directory config_managers survey flush "
        "dispatch delay recovery cleaning query transaction consumer verify timer statistics",
    ),
    "arrow": _room(
        "Messages as Arrow tables and Parquet files.", "ground files filter query sources"
    ),
    "mending": _room(
        "Mends a store's files: builds them again beside, and switches; on explicit request only.",
        "ground files log queues index directory survey dispatch recovery verify store",
    ),
    "planning": _room(
        "Plans of repairs: written down, done, and taken back; on explicit request only.",
        "ground files log queues index directory config_managers survey store diagnosis mending",
    ),
    "looking": _room(
        "Reading answers out of a store: its use, lag, history, index and future; read-only.",
        "ground files filter log queues index directory config_managers cleaning query "
        "transaction sources store",
    ),
    "moving": _room(
        "Moving stores and messages: copies, comparisons, exports, imports; the source is only "
        "read.",
        "ground files filter log queues index directory config_managers query sources store verify "
        "arrow mending looking",
    ),
    "diagnosis": _room(
        "What is wrong with a store, what that means for its data, and what a broker does; "
        "read-only.",
        "ground files queues directory config_managers survey verify store",
    ),
    "reporting": _room(
        "A store's state as one HTML page: for an engineer on call, and to keep.",
        "ground files delay directory looking diagnosis sources store",
    ),
    "spark": _room(
        "RocketMQ store directories in PySpark: a data source, streams, a sink, and jobs.",
        "ground files filter log queues index directory survey dispatch query verify sources store "
        "arrow",
    ),
    "testing": _room(
        "Helpers for tests of programs that use rocketstore: pytest fixtures and "
        "``check_invariants``.",
        "ground files directory config_managers dispatch delay survey store",
    ),
    "metrics": _room(
        "Metrics of an open store for Prometheus, under RocketMQ's names (extra ``metrics``).",
        "ground statistics store",
    ),
    "cli": _room(
        "The command line: ``rocketstore COMMAND PATH``.",
        "ground files filter log queues directory config_managers survey cleaning delay query "
        "timer transaction consumer verify store mending looking moving planning diagnosis "
        "reporting spark metrics",
    ),
}

#: Rooms inside ``cli`` and ``spark``, and what each may import of its neighbours.
INNER_ROOMS: dict[str, dict[str, str]] = {
    "cli": {
        "app": "command_list common",
        # imports the others when they are wanted
        "command_list": "common",
        "bench": "common",
        "commands": "common store_facts",
        "configuring": "common",
        "demo": "common",
        "engine": "common store_facts",
        "looking": "common",
        "mending": "common",
        "moving": "common",
        "reporting": "common",
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
    "java": "base",
    "record": "base files java",
    "filter": "base files record",
    "index": "base files",
    "log": "base files record",
    "flush": "base files log",
    "staging": "base files record log",
    "transaction": "base files record log",
    "delay": "base files java record log",
    "queues": "base files record filter",
    "query": "base files record filter index queues",
    "dispatch": "base files record filter queues index",
    "passes": "base files java record filter queues dispatch",
    "columns": "base files record filter passes",
}

#: The most floors that the rooms may make.
MAX_FLOORS = 9


def room_of(module: str) -> str:
    """Room of ``rocketstore.x.y``; ``ground`` for modules without one, ``""`` for the face."""
    parts = module.split(".")
    if len(parts) == 1:
        return ""
    if parts[1] == "__main__":
        return "cli"
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
