"""Place the gathered units: the dispatcher's decisions, made for whole runs of units."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.dispatch.queue_offset_rule import (
    MAX_LOOK_AHEAD_NBYTES,
    NEXT_NBYTES,
    Claim,
    NextRecord,
    QueueOffsetRule,
)

_log = logging.getLogger(__name__)
_UNIT = formats.CONSUME_QUEUE_UNIT
UNIT_NBYTES = _UNIT.nbytes


class Run(NamedTuple):
    """Units of one queue with consecutive queue offsets, as they lie in a file.

    Attributes
    ----------
    topic : bytes
    queue_id : int
    named : int
        0: the queue's own records; 1: records of other topics name it; 2: records of its own topic
        name it.
    first_offset : int
        Queue offset of the first unit.
    first_physical, end_physical : int
        Physical offset of the first record, and end of the last one.
    source : str
        File of the units.
    position : int
        Position of the first unit in it.
    unit_count : int
    """

    topic: bytes
    queue_id: int
    named: int
    first_offset: int
    first_physical: int
    end_physical: int
    source: str
    position: int
    unit_count: int


class _Place(NamedTuple):
    """The next unit to decide on, in log order: unit ``first`` of run ``number``."""

    physical_offset: int
    named: bool
    number: int
    first: int


class Piece(NamedTuple):
    """Units that go to one part of a queue: ``unit_count`` from ``start`` on."""

    start: int
    source: str
    position: int
    unit_count: int


@dataclass
class Queue:
    """One planned queue.

    Attributes
    ----------
    name : (topic, queue id)
    pieces : list of Piece
        Ascending; filler lies between them.
    next_index : int
    refused : int
        Records whose queue offset is invalid; they get no unit.
    """

    name: tuple[str, int]
    next_index: int = 0
    last_end: int = -1
    known: bool = False
    shifted: bool = False
    refused: int = 0
    pieces: list[Piece] = field(default_factory=list)

    @property
    def is_light(self) -> bool:
        """Return whether it is a light queue."""
        return self.name[0].startswith(formats.TOPIC_LMQ_PREFIX)

    def append(self, run: Run, number: int, count: int) -> None:
        """Append units of a run to the queue."""
        position = run.position + number * UNIT_NBYTES
        self.pieces.append(Piece(self.next_index, run.source, position, count))
        self.next_index += count


class UnitFiles:
    """Reads single units from their files."""

    def read(self, run: Run, number: int) -> tuple[int, int]:
        """Return (physical offset, size) of a unit's record."""
        with Path(run.source).open("rb", buffering=0) as file:
            file.seek(run.position + number * UNIT_NBYTES)
            place, size, _ = _UNIT.struct.unpack(file.read(UNIT_NBYTES))
        return place, size


class QueuePlanner:
    """Decides where each unit goes, like the store's dispatcher.

    Parameters
    ----------
    runs : sequence of Run
        In log order of their first records; runs of one record in the order of its queues.
    log_min_offset : int
        Beginning of the log.
    log_end : callable
        Returns the log's end; called only if needed.
    damaged : sequence of (start, stop)
        Ranges of the log without records, ascending.
    units_per_file : int
        Units in a queue file.

    Notes
    -----
    A run is normally placed as a whole, so the cost depends on the number of runs.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        log_min_offset: int,
        log_end: Callable[[], int],
        damaged: Sequence[tuple[int, int]] = (),
        units: UnitFiles | None = None,
        *,
        units_per_file: int,
    ) -> None:
        self.queues: dict[tuple[bytes, int], Queue] = {}
        self._runs = runs
        self._log_min_offset = log_min_offset
        self._log_end = log_end
        self._damaged = damaged
        self._units = units or UnitFiles()
        self._units_per_file = units_per_file
        self._rule = QueueOffsetRule()
        self._look_ahead_nbytes = MAX_LOOK_AHEAD_NBYTES
        self._following: dict[int, int] = {}
        self._mixed: set[tuple[bytes, int]] = set()
        self._link_runs()

    def _link_runs(self) -> None:
        """Link each run to the next of its queue and kind; note queues with several kinds."""
        last: dict[tuple[bytes, int, int], int] = {}
        kinds: dict[tuple[bytes, int], int] = {}
        for number, run in enumerate(self._runs):
            key = (run.topic, run.queue_id)
            if kinds.setdefault(key, run.named) != run.named:
                self._mixed.add(key)
            former = last.get((*key, run.named))
            if former is not None:
                self._following[former] = number
            last[*key, run.named] = number

    def plan(self) -> dict[tuple[bytes, int], Queue]:
        """Place all runs; return the queues, including those without a unit."""
        # For one record, its own queue comes first.
        heap: list[_Place] = []
        for number, run in enumerate(self._runs):
            place = _Place(run.first_physical, run.named > 0, number, 0)
            while heap and heap[0] < place:
                self._go_on(heap)
            heapq.heappush(heap, place)
        while heap:
            self._go_on(heap)
        return self.queues

    def _go_on(self, heap: list[_Place]) -> None:
        _, _, number, first = heapq.heappop(heap)
        run = self._runs[number]
        following = self._take(number, run, first)
        if following < run.unit_count:
            place = self._units.read(run, following)[0]
            heapq.heappush(heap, _Place(place, run.named > 0, number, following))

    def _take(self, number: int, run: Run, first: int) -> int:
        """Place units of a run from ``first`` on; return the first unit to decide on later."""
        key = (run.topic, run.queue_id)
        if len(run.topic) > formats.MAX_FOLDER_NAME_NBYTES:
            return run.unit_count
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue((run.topic.decode(), run.queue_id))
        queue_offset = run.first_offset + first
        place = self._units.read(run, first)[0] if first else run.first_physical
        single = key in self._mixed
        if queue.known and place < queue.last_end:
            return first + 1  # the record already has a unit, or was refused
        if queue.known and queue_offset < queue.next_index:
            return first + min(run.unit_count - first, queue.next_index - queue_offset)
        if not self._has_room(queue, number, run, first, place):
            return first + 1
        count = 1 if single else run.unit_count - first
        queue.append(run, first, count)
        queue.last_end = run.end_physical
        if first + count < run.unit_count:
            queue.last_end = sum(self._units.read(run, first))
        return first + count

    def _has_room(self, queue: Queue, number: int, run: Run, first: int, place: int) -> bool:
        """Advance the queue to the unit's queue offset; return False if that is invalid."""
        queue_offset = run.first_offset + first
        if queue_offset == queue.next_index:
            queue.known = True
            return True
        begins = not queue.known or queue.next_index == 0
        if run.named and queue.shifted and not begins:
            return True
        end = sum(self._units.read(run, first))
        if begins:
            asks = self._log_min_offset == 0
            per_file = self._units_per_file
            fillers = queue_offset % per_file
            claim = Claim(queue.name, queue_offset, 0, place, end, -1, fillers, per_file)
            if not self._is_plausible(queue, number, first, claim, asks=asks):
                return False
            queue.known, queue.next_index = True, queue_offset
            return True
        shifts = run.named == 1 and queue.is_light
        claim = Claim(
            queue.name, queue_offset, queue.next_index, place, end, queue.last_end,
            0 if shifts else queue_offset - queue.next_index, self._units_per_file,
        )  # fmt: skip
        if not self._is_plausible(queue, number, first, claim, asks=not shifts):
            return False
        if shifts:
            queue.shifted = True
        else:
            queue.next_index = queue_offset
        return True

    def _is_plausible(
        self, queue: Queue, number: int, first: int, claim: Claim, *, asks: bool
    ) -> bool:
        reason = self._rule.refusal(
            claim,
            self._log_min_offset,
            lambda: self._next_of_queue(number, first, claim.end),
            always_ask=asks and not queue.is_light,
        )
        if reason is None:
            return True
        _log.warning(
            "the record at log offset %d claims queue offset %d of %s queue %d, which cannot be: "
            "%s; it gets no unit",
            claim.place, claim.queue_offset, *queue.name, reason,
        )  # fmt: skip
        queue.refused += 1
        queue.known = True
        queue.last_end = claim.end
        return False

    def _next_of_queue(self, number: int, first: int, start: int) -> Iterator[NextRecord]:
        """Yield the queue's nearby records after unit ``first`` of a run, which ends at
        ``start``."""
        for queue_offset, place, size in self._units_after(number, first):
            stop = min(start + min(NEXT_NBYTES, self._look_ahead_nbytes), self._log_end())
            if place < start:
                continue  # the same record, which names the queue twice
            if place + size > stop or self._has_damage(start, place):
                self._look_ahead_nbytes -= stop - start
                return
            self._look_ahead_nbytes -= place + size - start
            yield NextRecord(queue_offset, place, place + size)
            start = place + size
        stop = min(start + min(NEXT_NBYTES, self._look_ahead_nbytes), self._log_end())
        self._look_ahead_nbytes -= stop - start

    def _units_after(self, number: int, first: int) -> Iterator[tuple[int, int, int]]:
        """Yield (queue offset, physical offset, size) of the units after unit ``first`` of a
        run."""
        following: int | None = number
        first += 1
        while following is not None:
            run = self._runs[following]
            for unit in range(first, run.unit_count):
                yield run.first_offset + unit, *self._units.read(run, unit)
            following, first = self._following.get(following), 0

    def _has_damage(self, start: int, stop: int) -> bool:
        return any(first < stop and last > start for first, last in self._damaged)


class FilePlan(NamedTuple):
    """One queue file to write; positions before the last unit without a unit are filler.

    Attributes
    ----------
    path : str
    nbytes : int
        Length of the whole file.
    used_count : int
        Number of units from the file's start on, including fillers.
    pieces : tuple of Piece
        Their indexes count from the file's start.
    """

    path: str
    nbytes: int
    used_count: int
    pieces: tuple[Piece, ...]


def plan_files(queue: Queue, directory: Path, file_size: int) -> Iterator[FilePlan]:
    """Yield the files of a queue, ascending, including those in gaps, which are all filler."""
    if not queue.pieces:
        return
    per_file = file_size // UNIT_NBYTES
    folder = directory / queue.name[0] / str(queue.name[1])
    pieces = iter(queue.pieces)
    piece: Piece | None = next(pieces)
    assert piece is not None
    start = piece.start - piece.start % per_file
    while start < queue.next_index:
        stop = min(start + per_file, queue.next_index)
        inside = []
        while piece is not None and piece.start < stop:
            count = min(piece.unit_count, stop - piece.start)
            inside.append(piece._replace(start=piece.start - start, unit_count=count))
            if count == piece.unit_count:
                piece = next(pieces, None)
            else:
                piece = Piece(
                    stop,
                    piece.source,
                    piece.position + count * UNIT_NBYTES,
                    piece.unit_count - count,
                )
        name = formats.offset_to_file_name(start * UNIT_NBYTES)
        yield FilePlan(str(folder / name), file_size, stop - start, tuple(inside))
        start += per_file
