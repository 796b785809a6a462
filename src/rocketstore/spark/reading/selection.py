"""Which records of a log a job reads, and how: the arguments that scan and jobs share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketstore.filter.message_filter import sql_filter
from rocketstore.sources.policy import plan_reading
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import Split
from rocketstore.spark.base.options import CORRUPTION_POLICIES, DEFAULT_PARTITION_BYTES
from rocketstore.spark.reading.listing import list_to_read

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a hint at the nearest valid word, and all valid words."""
    known = list(words)
    close = difflib.get_close_matches(str(word), known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}it must be one of {', '.join(known)}"


def check_corruption(policy: str, allowed: Iterable[str] = CORRUPTION_POLICIES) -> None:
    """Raise ``ValueError`` for an unknown policy."""
    known = tuple(allowed)
    if policy not in known:
        raise ValueError(f"on_corruption is {policy!r}: {nearest(policy, known)}")


@dataclass(frozen=True, slots=True)
class Selection:
    """A checked selection; tasks get its ``reading`` and ``filters``.

    Attributes
    ----------
    topics, tags, keys : tuple of str or None
        A record must have one of them; None: all records.
    filter : Sql92Filter or None
    begin, end : int or None
        Epoch ms of storeTimestamp; the end is exclusive.
    start, stop : int or None
        Bytes from the start of the log; the end is exclusive.
    split_bytes : int
        Maximum bytes of the log that one task reads.
    min_partitions : int or None
        Approximate number of tasks.
    on_corruption : str
        ``"fail"``, ``"skip"`` or ``"stop"``.
    check_crc : bool
    storage_options : dict or None
        fsspec options for the file system of a URI.

    Raises
    ------
    ValueError
        For an unknown policy, or ``split_bytes`` or ``min_partitions`` below 1.
    """

    topics: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    filter: Sql92Filter | None = None
    begin: int | None = None
    end: int | None = None
    start: int | None = None
    stop: int | None = None
    split_bytes: int = DEFAULT_PARTITION_BYTES
    min_partitions: int | None = None
    on_corruption: str = "fail"
    check_crc: bool = True
    storage_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_corruption(self.on_corruption)
        for name in ("begin", "end", "start", "stop"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int):
                raise TypeError(f"{name} must be int or None, not {type(value).__name__}")
        for low, high in (("begin", "end"), ("start", "stop")):
            first, last = getattr(self, low), getattr(self, high)
            if first is not None and last is not None and first > last:
                raise ValueError(f"{low} {first} is after {high} {last}")
        if self.split_bytes < 1:
            raise ValueError(f"split_bytes is {self.split_bytes}; it must be 1 or more")
        if self.min_partitions is not None and self.min_partitions < 1:
            raise ValueError(f"min_partitions is {self.min_partitions}; it must be 1 or more")

    def list_log(self, path: str | os.PathLike[str]) -> LogFiles:
        """List the files of the log at ``path``."""
        return list_to_read(path, self.on_corruption, storage_options=self.storage_options)

    def plan(self, log: LogFiles) -> list[Split]:
        """Return the splits of the selected range, in log order."""
        return plan_reading(
            log,
            self.on_corruption,
            check_crc=self.check_crc,
            start=self.start,
            stop=self.stop,
            split_bytes=self.split_bytes,
            min_partitions=self.min_partitions,
            begin=self.begin,
            end=self.end,
        )

    @property
    def reading(self) -> dict[str, Any]:
        """How to read a split, as keywords of ``walk``."""
        return {
            "on_corruption": self.on_corruption,
            "check_crc": self.check_crc,
            "storage_options": self.storage_options,
        }

    @property
    def filters(self) -> dict[str, Any]:
        """Which records to take, as keywords of ``read_batches`` besides ``reading``."""
        return {
            "topics": self.topics,
            "tags": self.tags,
            "keys": self.keys,
            "filter": self.filter,
            "begin": self.begin,
            "end": self.end,
        }


def filter_of(given: str | Sql92Filter | None) -> Sql92Filter | None:
    """Return the filter of an expression; ``FilterSyntaxError`` for other texts."""
    return None if given is None else sql_filter(given)


def words(given: str | Iterable[str] | None, name: str) -> tuple[str, ...] | None:
    """Return the words of a filter, given as one or several; ``TypeError`` if one is no str.

    A key has no space: one str of ``keys`` may hold several, as the option and ``KEYS`` do.
    """
    if given is None:
        return None
    if isinstance(given, str):
        found = tuple(given.split()) if name == "keys" else (given,)
        if not found:
            raise ValueError(f"{name} is empty")
    else:
        found = tuple(given)
    if not all(isinstance(word, str) for word in found):
        raise TypeError(f"{name} must be str or an iterable of str")
    return found


def plain(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return fsspec options in the form that travels to executors."""
    return dict(options) if options else None
