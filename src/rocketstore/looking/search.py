"""``grep``: messages by expressions over properties and bodies."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import kernels
from rocketstore.arguments import Progress, threads_of
from rocketstore.body_codec import decompressed
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import DecodeError
from rocketstore.log.commit_log import describe
from rocketstore.log.damage import DamagedRange
from rocketstore.looking.body_tests import BodyTest, json_test, regex_test
from rocketstore.looking.log_source import open_log
from rocketstore.looking.running_ahead import in_order
from rocketstore.message import StoredMessage
from rocketstore.query.queue_records import QueueRecords, check_record_word, is_packed
from rocketstore.query.selected_scan import time_limits
from rocketstore.sources.splits import Split, plan_splits
from rocketstore.sources.walk import walk
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

#: Bytes of the log between two looks at what was found.
_STEP_NBYTES = 4 << 20
_MAX_RANGES = 1000


class Match(NamedTuple):
    """A message that was found, and its body: decompressed, unless ``raw``."""

    message: StoredMessage
    body: bytes


class Grep:
    """Iterates over the messages that match, in log order; usable once. See ``grep``.

    Attributes
    ----------
    position : int
        A search with this ``start`` goes on after the last match that was returned.
    matches : int
    undecompressed : int
        Messages whose body could not be decompressed, and was compared as stored.
    first_undecompressed : str
        Place and reason of the first of them.
    damaged : list of DamagedRange
        Ranges that were skipped, at most 1,000.
    """

    def __init__(
        self,
        splits: list[Split],
        lost: list[DamagedRange],
        select: dict[str, Any],
        tests: Sequence[BodyTest],
        *,
        limit: int | None,
        raw: bool,
        records: str,
        check_crc: bool,
        jobs: int,
        progress: Progress | None,
    ) -> None:
        self.position = splits[0].base_offset + splits[0].start if splits else 0
        self.matches = self.undecompressed = 0
        self.first_undecompressed = ""
        self.damaged = lost
        self._splits = splits
        self._select = select
        self._tests = tests
        self._limit = limit
        self._raw = raw
        self._records = records
        self._check_crc = check_crc
        self._jobs = jobs
        self._progress = progress
        self._is_packed = is_packed if records == "queues" else lambda flags: False
        self._total = sum(split.nbytes for split in splits)

    def __iter__(self) -> Iterator[Match]:
        done = 0
        sources = []
        for split in self._splits:
            sources.append(functools.partial(self._steps, split, done))
            done += split.nbytes
        steps = in_order(sources, self._jobs)
        with contextlib.closing(steps):
            for step in steps:
                yield from self._matches_of(step)
                if self.matches == self._limit:
                    return
                self.position = max(self.position, step.position)
                if self._progress is not None:
                    self._progress("reading the log", min(step.done, self._total), self._total)

    def _steps(self, split: Split, before: int) -> Iterator[_Step]:
        """Walk a split; ``before``: bytes of the splits before it. Runs on any thread."""
        found = _Found(kernels.passes_select.SelectPass(**self._select), self._tests, raw=self._raw)
        consumer = _Followed(found if self._records == "log" else QueueRecords(found))
        damage: list[DamagedRange] = []

        def note(first: int, following: int | None, status: RecordStatus) -> None:
            damage.append(_damaged_range(split, first, following, status))

        for _ in walk(
            split, consumer, on_corruption="skip", check_crc=self._check_crc, on_damage=note
        ):
            at = max(0, consumer.position - split.base_offset - split.start)
            yield _Step(*found.take(), list(damage), consumer.position, before + at)
            damage.clear()
        yield _Step(*found.take(), damage, consumer.position, before + split.nbytes)

    def _matches_of(self, step: _Step) -> Iterator[Match]:
        self.damaged += step.damage[: _MAX_RANGES - len(self.damaged)]
        self.undecompressed += len(step.undecompressed)
        if step.undecompressed and not self.first_undecompressed:
            self.first_undecompressed = step.undecompressed[0]
        for match in step.matches:
            message = match.message
            self.matches += 1
            yield match
            self.position = message.physical_offset
            if not self._is_packed(message.sys_flag):  # else more of its batch may follow
                self.position += message.store_size
            if self.matches == self._limit:
                return


class _Step(NamedTuple):
    """What was found in some MiB of the log.

    Attributes
    ----------
    matches : list of Match
    undecompressed : list of str
        Place and reason of each body that could not be decompressed.
    damage : list of DamagedRange
    position : int
        Log offset up to which was read.
    done : int
        Bytes of all splits up to there.
    """

    matches: list[Match]
    undecompressed: list[str]
    damage: list[DamagedRange]
    position: int
    done: int


def _damaged_range(
    split: Split, first: int, following: int | None, status: RecordStatus
) -> DamagedRange:
    end = split.base_offset + split.range_stop
    if following is None and split.tail:
        end = max(first, min(end, split.base_offset + split.durable_stop))
    stop = end if following is None else following
    place = (split.uri, first - split.base_offset)
    return DamagedRange(*place, first, stop, describe(status, first))


class _Found:
    """A pass that keeps copies of the messages that match; see ``rocketstore.sources.Pass``."""

    def __init__(self, select: Any, tests: Sequence[BodyTest], *, raw: bool) -> None:
        self._select = select
        self._tests = tests
        self._raw = raw
        self._matches: list[Match] = []
        self._undecompressed: list[str] = []
        self._fed_nbytes = 0

    def take(self) -> tuple[list[Match], list[str]]:
        """Return the matches not yet taken, and which bodies could not be decompressed."""
        taken = self._matches, self._undecompressed
        self._matches, self._undecompressed = [], []
        self._fed_nbytes = 0
        return taken

    def consume(
        self,
        window: Any,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """See ``Pass``; FULL also after some bytes, so that what was found is handed out."""
        upto = min(limit, base_offset + position + _STEP_NBYTES)
        status, reached = self._select.consume(
            window, position, stop, base_offset, segment_end, upto, flags
        )
        self._fed_nbytes += reached - position
        for place in self._select.take():
            self._test(StoredMessage(window, place, base_offset, segment_end))
        if status == RecordStatus.END and reached < stop and base_offset + reached < limit:
            status = RecordStatus.FULL
        if status == RecordStatus.INCOMPLETE and self._fed_nbytes >= _STEP_NBYTES:
            status = RecordStatus.FULL  # the window ends; it is moved on when nothing was read
        return status, reached

    def _test(self, message: StoredMessage) -> None:
        body = message.body
        if not self._raw:
            try:
                body = decompressed(body, message.sys_flag)
            except DecodeError as error:
                self._undecompressed.append(f"log offset {message.physical_offset}: {error}")
        if all(test(body) for test in self._tests):
            self._matches.append(Match(message.detach(), body))


class _Followed:
    """Feeds another pass, and notes up to which physical offset."""

    def __init__(self, consumer: Any) -> None:
        self._consume = consumer.consume
        self.position = 0

    def consume(
        self, window: Any, position: int, stop: int, base_offset: int, *limits: int
    ) -> tuple[int, int]:
        """See ``Pass``."""
        status, reached = self._consume(window, position, stop, base_offset, *limits)
        self.position = base_offset + reached
        return status, reached


def grep(
    path: str | os.PathLike[str],
    expression: str | Sql92Filter | None = None,
    *,
    body_regex: str | Iterable[str] = (),
    body_json: str | Iterable[str] = (),
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    begin: int | None = None,
    end: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    limit: int | None = None,
    raw: bool = False,
    records: str = "log",
    check_crc: bool = True,
    jobs: int | None = None,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
) -> Grep:
    """Search a log for messages that meet all given conditions. Read-only, without locks.

    Parameters
    ----------
    path : str or path-like
        A store, its ``commitlog`` folder, or one segment.
    expression : str or Sql92Filter, optional
        SQL92 over the properties, evaluated by a kernel.
    body_regex : str or iterable of str
        Regular expressions; each must match somewhere in the body.
    body_json : str or iterable of str
        Conditions ``path=value`` or ``path``, see ``rocketstore.looking.body_tests.json_test``.
    topics, keys : iterable of str, optional
        A key is one of a message's keys, or its unique key.
    begin, end : int, optional
        Store times in epoch ms, ``begin <= time < end``.
    start, stop : int, optional
        Physical offsets: only records that begin in this range.
    limit : int, optional
        Most matches.
    raw : bool
        Compare and return bodies as stored, without decompression.
    records : {"log", "queues"}
        ``"queues"``: without half messages and rollbacks, with batches split into messages.
    check_crc : bool
    jobs : int, optional
        Segments that are read at a time, each on a thread; default one for each processor, at most
        4.
    config : MessageStoreConfig, optional
        Names a log outside the root.
    progress : callable, optional

    Returns
    -------
    Grep
        An iterator of ``Match``. Corrupt ranges are skipped and listed in ``damaged``. Memory: for
        each job the matches of some 4 MiB of log, and one body of at most 64 MiB.

    Raises
    ------
    FilterSyntaxError
        An expression is invalid; the text shows where.
    FileNotFoundError, MappedFileError, UnsafePathError, PermissionError
        There is no readable log.
    """
    check_record_word(records)
    tests = [regex_test(one) for one in _texts(body_regex)]
    tests += [json_test(one) for one in _texts(body_json)]
    if isinstance(expression, str):
        from rocketstore.filter.sql92.sql92_filter import Sql92Filter

        expression = Sql92Filter(expression)
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; it must be 1 or more")
    log = open_log(path, config)
    select: dict[str, Any] = {
        "topics": None if topics is None else list(topics),
        "keys": None if keys is None else list(keys),
        "filter": expression,
        **time_limits(begin, end),
    }
    kernels.passes_select.SelectPass(**select)  # raises for invalid limits
    size = max((segment.segment_size for segment in log.segments), default=1)
    splits = plan_splits(log, split_bytes=size, begin=begin, end=end, start=start, stop=stop)
    lost = [
        DamagedRange(one.uri, 0, one.start, one.stop, one.reason)
        for one in log.lost
        if (start is None or one.stop > start) and (stop is None or one.start < stop)
    ]
    return Grep(
        splits, lost, select, tests, limit=limit, raw=raw, records=records, check_crc=check_crc,
        jobs=threads_of(jobs, 4), progress=progress,
    )  # fmt: skip


def _texts(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
