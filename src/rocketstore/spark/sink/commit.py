"""Commit: one process appends the rows that many tasks staged, each row exactly once.

A commit locks the store, writes the intent (log end and files), appends, syncs, marks the batch as
done and deletes the stage, in this order. The process may die between any two steps. A retry of the
same batch finds the intent, compares the log from the noted offset with the stage, and appends what
is missing. It never truncates the log, since other writers may have appended meanwhile. Nothing
here needs Spark.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ConfigError, RocketStoreError, ServiceFailedError
from rocketstore.files.durable import sync_directory
from rocketstore.message import StoredMessage
from rocketstore.spark.sink.ledger import STAGE_DIR, Entry, Intent, Ledger, Part
from rocketstore.spark.sink.stage import (
    StagedFile,
    last_written,
    read_pieces,
    read_records,
    remove_stage,
)
from rocketstore.status import PutMessageStatus

Step = Callable[[str], None]
#: The steps reported to ``on_step``, each before it runs; "piece" is repeated.
STEPS = ("open", "intent", "piece", "sync", "done", "close", "clean")
#: Appended records are written to disk in parallel, which leaves little to sync.
FLUSH_INTERVAL_MS = 50
#: A stage without an intent counts as abandoned after so long without a write.
LEFT_STAGE_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of a commit.

    Attributes
    ----------
    rows : int
        Number of messages in the batch.
    appended : int
        How many of them this commit appended; fewer if an earlier, interrupted one appended some.
    start, end : int or None
        Physical offsets of the appended range; None: there was nothing to append.
    """

    rows: int
    appended: int
    start: int | None = None
    end: int | None = None


def _why_refused(status: PutMessageStatus) -> str:
    """Return a status and, if known, its reason. A stage has no records of a wrong length."""
    if status == PutMessageStatus.SERVICE_NOT_AVAILABLE:
        return f"{status.name}: its disk is nearly full, or it belongs to a slave"
    return str(status.name)


def _say_nothing(_: str) -> None:
    """Ignore the step."""


def commit(
    root: Path,
    files: Iterable[StagedFile],
    *,
    app: str,
    version: int = 0,
    once: bool = False,
    stage: str,
    broker_version: str | None = None,
    config: MessageStoreConfig | None = None,
    clock: Callable[[], int] | None = None,
    on_step: Step = _say_nothing,
) -> CommitReport:
    """Append the files' rows to the store at ``root``, in the order of their partitions.

    Parameters
    ----------
    root : Path
        Root of the store, which is created if it does not exist.
    files : iterable of StagedFile
    app, version : str, int
        The batch: a version not above the last completed one is skipped.
    once : bool
        The batch is not part of a transaction; ``app`` is unique to it.
    stage : str
        Folder of the files; deleted at the end.
    broker_version : str, optional
        The RocketMQ version for which the rows were staged.
    config, clock
        See ``rocketstore.open``.
    on_step : callable, optional
        Called with the next of ``STEPS``, for tests.

    Returns
    -------
    CommitReport

    Raises
    ------
    StoreLockedError
        If another process writes the store.
    DecodeError
        If a file differs from what was staged.
    RocketStoreError, OSError
        If the log cannot be appended to. The next commit continues after what was appended.
    """
    from rocketstore.store.default_message_store import open as open_store

    ledger = Ledger(root)
    ordered = tuple(sorted((f for f in files if f.rows), key=lambda file: file.partition))
    rows = sum(file.rows for file in ordered)
    known = ledger.read(app)
    is_done = known.done is not None and version <= known.done
    is_store = (root / formats.COMMIT_LOG_DIR).exists()
    if is_done or (not ordered and known.intent is None and is_store):
        abort(root, stage)
        return CommitReport(rows, 0)
    for file in ordered:
        for _ in read_pieces(file):
            pass
    on_step("open")
    if root.is_dir() and not is_store:
        _sync_ways(root)
    config = config if config is not None else MessageStoreConfig()
    config = config.replace(flush_interval_commit_log=FLUSH_INTERVAL_MS)
    with open_store(root, "a", config=config, clock=clock) as store:
        batch = _Commit(store, ledger, on_step)
        if broker_version is not None and store.broker_version != broker_version:
            raise ConfigError(
                f"the rows were staged for RocketMQ {broker_version}, but the store {root} is "
                f"written as {store.broker_version}; write the batch again"
            )
        ledger.close_parts(app, store.max_physical_offset)
        _forget_dead_writes(ledger, app)
        _remove_left_stages(ledger, stage)
        entry = batch.finish_earlier(app)
        if ordered and (entry.done is None or version > entry.done):
            sync_directory(Path(stage))
            sync_directory(Path(stage).parent)
            entry = Entry(app, entry.done, Intent(version, ordered, ()), stage, once)
            batch.run(entry, 0)
        on_step("close")
    on_step("clean")
    remove_stage(stage)
    return CommitReport(rows, batch.appended, batch.start, batch.end)


def abort(root: Path, stage: str) -> bool:
    """Delete a stage unless a commit has begun with it; return whether it was deleted."""
    if Ledger(root).is_pending(stage):
        return False
    remove_stage(stage)
    # A refused store must stay unchanged; rmdir keeps folders that are not empty.
    for folder in (root / formats.SPARK_DIR / STAGE_DIR, root / formats.SPARK_DIR):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return True


def _forget_dead_writes(ledger: Ledger, but: str) -> None:
    """Delete entries and stages of interrupted non-transactional writes: no retry needs them."""
    for entry in list(ledger.entries()):
        if entry.once and entry.app != but:
            if entry.stage is not None:
                remove_stage(entry.stage)
            ledger.remove(entry.app)


def _remove_left_stages(ledger: Ledger, but: str) -> None:
    """Delete stages in the store whose writers died before writing their intent.

    If such a writer is still alive, its commit misses its files and appends nothing. Stages
    outside the store are kept: an intent of another store may need them.
    """
    folder = ledger.root / formats.SPARK_DIR / STAGE_DIR
    needed = {Path(but).name}
    for entry in ledger.entries():
        if entry.intent is not None and entry.stage is not None:
            needed.add(Path(entry.stage).name)
    oldest = time.time() - LEFT_STAGE_S
    for stage in folder.iterdir() if folder.is_dir() else ():
        if stage.name not in needed and last_written(stage) < oldest:
            remove_stage(str(stage))


def _sync_ways(root: Path) -> None:
    """Sync the parent folders of a new store, which staging tasks created."""
    device = root.stat().st_dev
    for folder in root.parents:
        if folder.stat().st_dev != device:
            break
        try:
            sync_directory(folder)
        except PermissionError:
            break  # without read access this user cannot have created anything in it


class _Commit:
    """The steps of one commit, under the store's lock."""

    def __init__(self, store: Any, ledger: Ledger, on_step: Step) -> None:
        self.store = store
        self.ledger = ledger
        self.appended = 0
        self.start: int | None = None
        self.end: int | None = None
        self._on_step = on_step

    def finish_earlier(self, app: str) -> Entry:
        """Append what is missing of an interrupted batch; return the entry without intent."""
        entry = self.ledger.read(app)
        if entry.intent is not None:
            entry = self.run(entry, self._count_present(entry.intent))
        if entry.stage is not None:
            remove_stage(entry.stage)
        return entry

    def run(self, entry: Entry, row: int) -> Entry:
        """Append the intent's rows from ``row`` on, sync, and mark the batch as done."""
        intent = entry.intent
        assert intent is not None
        store = self.store
        if row < intent.rows:
            part = Part(store.max_physical_offset, row)
            parts = (*intent.parts, part)
            self._on_step("intent")
            self.ledger.write(replace(entry, intent=replace(intent, parts=parts)))
            self.start = part.start if self.start is None else self.start
            self._append(intent.files, row)
            self.end = store.max_physical_offset
        self._on_step("sync")
        store.flush()
        self._on_step("done")
        done = replace(entry, done=intent.version, intent=None)
        if entry.once:
            self.ledger.remove(entry.app)
        else:
            self.ledger.write(done)
        return done

    def _append(self, files: tuple[StagedFile, ...], row: int) -> None:
        put_staged = self.store.reader.log.appender.put_staged
        first, skip = 0, 0
        if row:
            first, skip, _ = next(read_records(files, row))
        for file in files[first:]:
            for position, piece in read_pieces(file, last=True):
                if position + len(piece) <= skip:
                    continue
                self._on_step("piece")
                inside = max(0, skip - position)
                result = put_staged(piece[inside:], position + inside)
                if not result.ok:
                    bad = next(status for status in result.statuses if status)
                    raise ServiceFailedError(
                        f"the store {self.store.path} refused staged records: "
                        f"{_why_refused(PutMessageStatus(bad))}"
                    )
                self.appended += len(result)
            skip = 0

    def _count_present(self, intent: Intent) -> int:
        """Return how many leading rows of the batch are in the log."""
        row = 0
        for number, part in enumerate(intent.parts):
            row = part.row
            stop = part.stop
            if stop is None and number + 1 < len(intent.parts):
                stop = intent.parts[number + 1].start
            row += self._count_from(intent.files, part, stop)
        return row

    def _count_from(self, files: tuple[StagedFile, ...], part: Part, stop: int | None) -> int:
        store = self.store
        end = store.max_physical_offset
        if part.start < max(store.min_physical_offset, 0):
            raise RocketStoreError(
                f"the log of {store.path} now begins at {store.min_physical_offset}: it no longer "
                f"shows whether it contains the batch whose commit began at {part.start}; if it "
                f"does, delete the batch's file in {self.ledger.directory}"
            )
        stored = store.reader.scan(part.start, end if stop is None else min(stop, end), "stop")
        return _count_equal(files, part.row, stored)


def _count_equal(files: tuple[StagedFile, ...], row: int, stored: Iterable[StoredMessage]) -> int:
    matches = kernels.staged_records.matches
    count = 0
    for (_, _, ours), theirs in zip(read_records(files, row), stored, strict=False):
        if not matches(ours, theirs.raw):
            break
        count += 1
    return count
