"""Findings and notes about the files around log, queues and index, for a ``VerifyReport``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from rocketstore import formats
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.survey.deleted_topics import deleted_topics_note
from rocketstore.verify.beside.foreign_entries import judge_foreign
from rocketstore.verify.beside.judgement import Bounds, Judgement
from rocketstore.verify.beside.surroundings import (
    DERIVED_FOLDERS,
    QueueEnds,
    Surroundings,
    one_file,
)
from rocketstore.verify.scope import VerifyScope

#: Lower bounds of what opening for writing processes per second.
_NBYTES_PER_SECOND = 200_000_000
_UNITS_PER_SECOND = 500_000


def begin_surroundings(around: Surroundings, scope: VerifyScope) -> None:
    """Report unreadable files, and note them for the walk."""
    scope.around = around
    for path, start, stop in _hidden(around, scope):
        scope.note_damage(start, stop)
        scope.hidden[start] = stop
        lost = f"{stop - start} bytes of the log, from log offset {start}, could not be read"
        if path in around.access.odd:
            reason = f"{around.access.odd_in_words(path)}: {lost}"
            scope.report.add("odd-file", path, 0, start, reason)
        else:
            reason = f"{around.access.unreadable[path]}: {lost}"
            code = "log.segment.unreadable"
            scope.report.add("unreadable", path, 0, start, reason, code=code)
    segments = {path for path, *_ in _hidden(around, scope)}
    for path in sorted(set(around.access.unreadable) - segments):
        reason = f"{around.access.unreadable[path]}: it could not be read"
        scope.report.add("unreadable", path, 0, None, reason, code="store.owner")
    for path in sorted(set(around.access.odd) - segments):
        scope.report.add("odd-file", path, 0, None, around.access.odd_in_words(path))
    for path, other in sorted(around.access.shared.items()):
        scope.report.add("odd-file", path, 0, None, one_file(other))
    note = around.hard_links_note(scope.log, scope.stop)
    scope.report.notes += [note] if note is not None else []
    for path, reason in around.begun_nowhere(scope.log.segment_size):
        scope.report.add("foreign-file", path, 0, None, reason)
    _report(scope, judge_foreign(around.paths, around.access.foreign, around.dialect))
    starts = [start for start in scope.hidden if start < scope.start or scope.is_empty]
    if starts:
        scope.start = min(starts)
        scope.stop = max(scope.stop, scope.start)


def finish_surroundings(
    around: Surroundings,
    scope: VerifyScope,
    queues: QueueTable | None,
    ends: QueueEnds,
    newest: int,
) -> None:
    """Report missing folders, and faults of tables and checkpoint.

    ``queues``: ``None`` if they are not in files. ``newest``: the newest store time.
    """
    _report_absent(around, scope)
    note = deleted_topics_note(around.deleted_topics, "opening for writing rebuilds their queues")
    scope.report.notes += [note] if note is not None else []
    around.tables.dialect = around.dialect
    _report(scope, around.tables.judge_files())
    _report(scope, around.tables.judge_timer_files())
    _report(scope, around.judge_queue_types())
    _report(scope, around.judge_no_tables())
    if not scope.lost_end:
        _report(
            scope,
            around.checkpoint.judge(
                max(newest, scope.newest), scope.start, scope.stop, scope.may_be_record
            ),
        )
        _report(scope, around.tables.judge_timer(_bounds(scope, queues, ends), scope.stop))
    if queues is not None and not scope.lost_end:
        _report(scope, _judge_timer(around, scope, queues))
        around.has_light_queues = scope.counts.pop("light_names", 0) > 0
        lost = around.lost_queues(queues, ends, scope.start, scope.stop)
        _report(scope, around.judge_lost_queues(lost, queues, ends))
        gone = {(one.topic, one.queue_id) for one in lost}
        _report(scope, around.tables.judge_offsets(_bounds(scope, queues, ends), gone))


def _judge_timer(
    around: Surroundings, scope: VerifyScope, queues: QueueTable
) -> Iterable[Judgement]:
    from rocketstore.verify.beside.timer_report import judge_timer_units

    now = time.time_ns() // 1_000_000
    return judge_timer_units(around.paths.root, around.dialect, scope.log, queues, now)


def _report_absent(around: Surroundings, scope: VerifyScope) -> None:
    for name in DERIVED_FOLDERS:
        counter, what = DERIVED_FOLDERS[name]
        count = scope.counts.pop(counter, 0)
        if name in around.absent and count:
            seconds = 1 + (scope.stop - scope.start) // _NBYTES_PER_SECOND
            seconds += count // _UNITS_PER_SECOND
            reason = (
                f"the folder {name} is missing; {count:,} {what} will be rebuilt from the "
                f"log (about {seconds} s)"
            )
            code = "index.missing" if name == formats.INDEX_DIR else "queue.missing"
            path = around.paths.root / name
            scope.report.add("missing-folder", path, 0, None, reason, code=code)


def _report(scope: VerifyScope, judgements: Iterable[Judgement]) -> None:
    """Add judgements to the report, as findings or notes."""
    for one in judgements:
        if one.is_finding:
            scope.report.add(one.kind, one.path, one.position, None, one.reason, code=one.code)
        else:
            scope.report.remark(f"{one.path}: {one.reason}", one.code, one.path, one.count)


def _hidden(around: Surroundings, scope: VerifyScope) -> list[tuple[Path, int, int]]:
    found = around.access.hidden_segments(around.paths, scope.log.segment_size)
    return [(path, start, stop) for start, stop, path in found]


def _bounds(scope: VerifyScope, queues: QueueTable | None, ends: QueueEnds) -> Bounds:
    """Return a function for a queue's lowest and next offset, from its files and records."""

    def bounds(topic: str, queue_id: int) -> tuple[int, int] | None:
        end = ends.get((topic, queue_id))
        queue = queues.get(topic, queue_id) if queues is not None else None
        around = scope.around
        assert around is not None
        folder = around.paths.consume_queue / topic / str(queue_id)
        if around.access.hides(folder):
            return None
        if any(path.parent == folder for path in around.access.closed):
            return None
        if queue is None:
            return None if end is None else (0, end)
        low, high = queue.min_index, queue.max_index
        if isinstance(queue, ConsumeQueue) and topic.startswith(formats.TOPIC_LMQ_PREFIX):
            return None if around.checkpoint.aborted else (low, high)
        return low, max(high, end or 0)

    return bounds
