"""Verifies a store: opens its files for the checks, and repeats them while a writer runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.arguments import Progress, threads_of
from rocketstore.config_managers.files import TOPICS_FILE, config_path
from rocketstore.directory.parts import refuse_dledger
from rocketstore.directory.paths import StorePaths
from rocketstore.store.settling import look_until_settled
from rocketstore.verify.check import verify_parts
from rocketstore.verify.report import LEVELS, VerifyReport

if TYPE_CHECKING:
    from rocketstore.config import MessageStoreConfig
    from rocketstore.log.commit_log import CommitLog
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.recovery.report import RecoveryReport
    from rocketstore.store.open_store import OpenStore
    from rocketstore.store.read_only import ReadOnlyParts
    from rocketstore.survey.facts import StoreFacts
    from rocketstore.verify.beside.surroundings import Surroundings


def verify(
    store: OpenStore,
    config: MessageStoreConfig,
    *,
    level: str = "crc",
    progress: Progress | None = None,
    max_findings: int = 1000,
) -> VerifyReport:
    """Check an open store's files against each other; see ``verify_parts``.

    In mode ``"r"`` the files are read again as they are on disk; nothing is derived in memory.
    """
    if store.mode == "r":
        return verify_files(
            store.path, config, level=level, progress=progress, max_findings=max_findings
        )
    paths = StorePaths.of(store.path, config)

    def look() -> VerifyReport:
        parts, lag_nbytes = store.reader, store.dispatch_behind_nbytes
        end = max(parts.log.max_offset, 0) - lag_nbytes
        report = verify_parts(
            parts.log,
            parts.queues,
            parts.index if config.message_index_enable else None,
            delay_ms=config.delay_ms,
            dispatched_offset=end,
            indexed_offset=end,
            damaged=store.recovery_report.damaged,
            around=_surroundings(paths, store.facts),
            level=level,
            progress=progress,
            max_findings=max_findings,
        )
        found = store.recovery_report
        _note_delays(report, paths.root, config, parts, store.facts, found)
        if not lag_nbytes:
            judge_transactions(report, parts)
        return report

    return look_until_settled(look, paths)


def verify_files(
    root: Path,
    config: MessageStoreConfig,
    *,
    level: str = "crc",
    crc_segments: int = 0,
    jobs: int | None = None,
    progress: Progress | None = None,
    max_findings: int = 1000,
) -> VerifyReport:
    """Check the files of the store at ``root`` as they are on disk; see ``verify_parts``.

    ``crc_segments``: at the level ``structure``, bodies' CRCs are checked in so many last segments.
    ``jobs``: threads, one for each processor by default, at most 2.
    While a writer runs, findings about recently changed files are checked again (see
    ``look_until_settled``).

    Raises what ``open`` raises, and ``FileNotFoundError`` if there is no log. A new store that has
    a state file but no log yet does not raise.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS}, not {level!r}")
    paths = StorePaths.of(root, config)
    threads = threads_of(jobs)

    def look() -> VerifyReport:
        return _look_at_files(paths, config, level, crc_segments, threads, progress, max_findings)

    return look_until_settled(look, paths)


def _look_at_files(
    paths: StorePaths,
    config: MessageStoreConfig,
    level: str,
    crc_segments: int,
    jobs: int,
    progress: Progress | None,
    max_findings: int,
) -> VerifyReport:
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.store.read_only import ReadOnlyParts

    refuse_dledger(paths.root, *paths.log_folders)
    has_none = not paths.commit_log.is_dir() and not paths.state.is_file()
    none = FileNotFoundError(
        f"{paths.root} is not a store: it has no folder {paths.commit_log.name}"
    )
    if has_none and not paths.root.is_dir():
        raise none
    around = _surroundings(paths)
    files = ReadOnlyParts(
        paths, config, derive="none", as_files=True, clock=no_clock, progress=progress
    )
    try:
        if has_none:
            raise none  # nothing shows that there was a log
        around.take_facts(files.facts)
        dispatched = dispatched_offset(files, around)
        indexed = indexed_offset(files, dispatched, around)
        if paths.has_writer():
            files.load_again()  # so that units and keys up to these offsets are loaded
        report = verify_parts(
            files.log,
            files.queues,
            files.index if config.message_index_enable else None,
            delay_ms=config.delay_ms,
            dispatched_offset=dispatched,
            indexed_offset=indexed,
            damaged=files.report.damaged,
            around=around,
            queues_in_files=files.rocksdb is None or files.rocksdb.beside_files,
            level=level,
            crc_offset=_start_of_last(files.log, crc_segments),
            releases_pages=True,
            jobs=jobs,
            progress=progress,
            max_findings=max_findings,
        )
        if dispatched == files.log.max_offset:
            reader = StoreReader(files.log, files.queues, files.index, config, files.dialect)
            judge_transactions(report, reader)
        # Problems of the tables and of the queues' types are reported as findings already.
        topics, known = str(config_path(paths.root, TOPICS_FILE)), around.queue_types.contradictions
        report.notes += [
            note for note in files.report.notes if not note.startswith(topics) and note not in known
        ]
        _note_delays(report, paths.root, config, files, files.facts, files.report)
        return report
    finally:
        files.close()


def _start_of_last(log: CommitLog, count: int) -> int | None:
    """Return the offset at which the last ``count`` segments with records begin."""
    starts = [file.file_from_offset for file in log.queue.files]
    starts = [start for start in starts if start < log.max_offset]
    return starts[-min(count, len(starts))] if count and starts else None


def judge_transactions(report: VerifyReport, reader: StoreReader) -> None:
    """Add op messages that name no half message, if queues and log agree."""
    from rocketstore.transaction.judgement import has_transactions, ops_without_half

    if not report.ok or not has_transactions(reader):
        return
    for message, beyond in ops_without_half(reader):
        path, position, _ = reader.log.place(message.physical_offset)
        names = ", ".join(map(str, beyond[:3])) + (" …" if len(beyond) > 3 else "")
        reason = (
            f"the op message at log offset {message.physical_offset} names the half message "
            f"{names}, past the end of the half topic"
        )
        report.add("transaction-op", path, position, message.physical_offset, reason)


def _note_delays(
    report: VerifyReport,
    root: Path,
    config: MessageStoreConfig,
    parts: StoreReader | ReadOnlyParts,
    facts: StoreFacts,
    found: RecoveryReport,
) -> None:
    """Note the delayed messages that wait, if the store has delayed messages."""
    if all(queue.topic != formats.TOPIC_SCHEDULE for queue in parts.queues):
        return
    from rocketstore.store.engine.delaying import waiting_notes

    newest = found.newest_store_timestamp
    rows = waiting_notes(root, config, parts.log, parts.queues, facts.aborted, newest)
    for text, due in rows:
        report.remark(text, "delay.overdue" if due else "", count=due)


def no_clock() -> int:
    """Stand in for the clock of a store that is only read."""
    raise AssertionError("nothing is written, so the clock must not be called")


def _surroundings(paths: StorePaths, facts: StoreFacts | None = None) -> Surroundings:
    from rocketstore.verify.beside.surroundings import Surroundings

    around = Surroundings(paths)
    if facts is not None:
        around.dialect = facts.dialect
    return around


def dispatched_offset(files: ReadOnlyParts, around: Surroundings) -> int:
    """Return the offset up to which records must have their units.

    After a clean stop this is the log's end. Otherwise dispatch may lag, unless all queues that
    existed are gone.
    """
    end = files.log.max_offset
    if formats.CONSUME_QUEUE_DIR in around.absent:
        was_there = around.was_there(formats.CONSUME_QUEUE_DIR, files.facts)
        return end if was_there else end - files.behind_nbytes
    return end if not files.facts.aborted else end - files.behind_nbytes


def indexed_offset(files: ReadOnlyParts, dispatched: int, around: Surroundings) -> int:
    """Return the offset up to which records must have their keys.

    After a clean stop these are all dispatched records. Otherwise the index may end earlier, and
    the keys of its last record may be incomplete.
    """
    if not files.facts.aborted:
        return dispatched
    if formats.INDEX_DIR in around.absent and around.was_there(formats.INDEX_DIR, files.facts):
        return dispatched
    newest = files.index.files[-1].header if files.index.files else None
    if newest is None or newest.index_count <= 1:
        return max(files.log.min_offset, 0)
    return min(dispatched, newest.end_physical_offset)
