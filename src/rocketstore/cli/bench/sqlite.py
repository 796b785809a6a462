"""What a program might do instead: keep the messages in a table of SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from rocketstore.message import Message

_TABLE = """
create table messages (
    number integer primary key, topic text, queue integer, key text, properties text,
    born_timestamp integer, body blob
)
"""
_INSERT = (
    "insert into messages (topic, queue, key, properties, born_timestamp, body)"
    " values (?, ?, ?, ?, ?, ?)"
)


class SqliteLog:
    """A table with an index on topic and key, in WAL mode; a context manager."""

    def __init__(self, path: Path, *, synced: bool) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(f"pragma synchronous = {'full' if synced else 'off'}")
        self._connection.execute(_TABLE)
        self._connection.execute("create index messages_by_key on messages (topic, key)")

    def __enter__(self) -> SqliteLog:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.closing(self._connection):
            pass

    def put(self, messages: list[Message], step: int) -> None:
        """Insert the messages, ``step`` in each transaction."""
        execute = self._connection.execute
        for first in range(0, len(messages), step):
            execute("begin")
            self._connection.executemany(
                _INSERT,
                [
                    (
                        one.topic, one.queue_id, one.keys, str(one.properties),
                        one.born_timestamp, one.body,
                    )
                    for one in messages[first : first + step]
                ],
            )  # fmt: skip
            execute("commit")
