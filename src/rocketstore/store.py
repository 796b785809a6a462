"""``DefaultMessageStore`` and ``open``: the library's front door."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.async_puts import AsyncPutMethods
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ForkedStoreError, StoreClosedError
from rocketstore.filter import MessageFilter, TagFilter
from rocketstore.lock_order import LockRank
from rocketstore.message import MessageBatch, StoredMessage, decode_message_id
from rocketstore.results import MAX_TIMESTAMP, GetMessageResult, QueryMessageResult
from rocketstore.store_arguments import (
    check_corruption_word,
    check_int,
    check_settings,
    clamp,
    merge,
    now_ms,
)
from rocketstore.store_maintenance import StoreMaintenance
from rocketstore.store_place import check_platform, check_root, refuse_vanished
from rocketstore.store_scanning import LogOrderMethods

if TYPE_CHECKING:
    import numpy

    from rocketstore.queries import StoreReader
    from rocketstore.queue_view import QueueView
    from rocketstore.reader import Gap, ReadOnlyParts
    from rocketstore.recovery import Progress
    from rocketstore.recovery_report import RecoveryReport
    from rocketstore.services.reput import ArrivingListener
    from rocketstore.store_files import StoreFacts
    from rocketstore.verify import VerifyReport
    from rocketstore.writer import StoreWriter

MODES = ("r", "r+", "a", "x")
DERIVE_WORDS = ("tail", "full", "none")
#: Times a directory is read whose files are deleted at the same time.
_READING_TRIES = 10
#: ``find`` with a topic and one key only.
_NOTHING_ELSE = (None,) * 5
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def open(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    config: MessageStoreConfig | None = None,
    clock: Callable[[], int] | None = None,
    arriving_listener: ArrivingListener | None = None,
    start: bool = True,
    derive: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> DefaultMessageStore:
    """Open a RocketMQ store directory.

    Parameters
    ----------
    path : path
        The store's root (the directory that holds ``commitlog``).
    mode : {"r", "r+", "a", "x"}
        Read only (nothing is written, works beside a running broker); read and write; the same,
        created when absent; create, fail when it exists.
    config : MessageStoreConfig, optional
    clock : callable, optional
        Returns epoch ms; every time that is written comes from it.
    arriving_listener : callable, optional
        Called for every dispatched message, see ``ReputMessageService``.
    start : bool
        Start the services' threads; otherwise they are stepped by hand.
    derive : {"tail", "full", "none"}
        Mode "r" only (default "tail"): make in memory what queues and index lack.
    progress : callable, optional
        ``progress(what, done, total)`` while a long check runs.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    DefaultMessageStore

    Raises
    ------
    FileNotFoundError, NotADirectoryError, FileExistsError
        About ``path``.
    StoreLockedError
        Somebody else writes the store.
    ConfigError
        A wrong option, or sizes that contradict the files.
    CorruptionError
        Writing modes: a part of the log that was durable is damaged.
    MappedFileError, UnsafePathError
        Files of wrong size, name or kind; links that leave the root.
    """
    if os.fspath(path) == "":
        raise ValueError("the path of the store is empty")
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is none of {MODES}")
    if derive is not None and mode != "r":
        raise ValueError('derive is for mode "r"')
    if derive is not None and derive not in DERIVE_WORDS:
        raise ValueError(f"derive {derive!r} is none of {DERIVE_WORDS}")
    check_platform(mode)
    settings = merge(config, options)
    check_settings(settings)
    root = Path(path)
    check_root(root, mode)
    return DefaultMessageStore(
        root,
        mode,
        settings,
        clock=clock,
        arriving_listener=arriving_listener,
        start=start,
        derive=derive or "tail",
        progress=progress,
    )


class DefaultMessageStore(AsyncPutMethods, LogOrderMethods, StoreMaintenance):
    """An open store; see ``open``. Use it as a context manager.

    Notes
    -----
    Threading: all methods may be called from any thread. A forked child must open its own
    (``ForkedStoreError``). Source: RocketMQ ``store/DefaultMessageStore.java``.
    """

    def __init__(
        self,
        root: Path,
        mode: str,
        config: MessageStoreConfig,
        *,
        clock: Callable[[], int] | None,
        arriving_listener: ArrivingListener | None,
        start: bool,
        derive: str,
        progress: Progress | None,
    ) -> None:
        self.path = root
        self.mode = mode
        self._config = config
        self._closed = False
        self._forks = _forks
        self._derive = derive
        self._progress = progress
        self._clock = clock if clock is not None else now_ms
        self._opened_at = time.monotonic()
        self._boot_timestamp = self._clock()
        self._writer: StoreWriter | None = None
        self._refresh_lock = kernels.locks.OrderedLock(LockRank.REFRESH)
        from rocketstore.store_files import StorePaths

        self._paths = StorePaths.of(root, config)
        if mode == "r":
            self._open_parts()
            self.put = self._refuse_put
            return
        if mode == "r+":
            self._paths.refuse_named_nothing()
        self._paths = self._paths.absolute()
        self._open_writer(clock, arriving_listener, start=start)

    def _open_writer(
        self,
        put_clock: Callable[[], int] | None,
        listener: ArrivingListener | None,
        *,
        start: bool,
    ) -> None:
        from rocketstore.queries import StoreReader
        from rocketstore.writer import StoreWriter, create_root

        if not self.path.exists():
            create_root(self.path)
        self._writer = writer = StoreWriter(
            self._paths,
            self._config,
            clock=self._clock,
            put_clock=put_clock,
            listener=listener,
            progress=self._progress,
            start=start,
        )
        self._reader = StoreReader(
            writer.log,
            writer.queues,
            writer.index,
            self._config,
            writer.dialect,
        )
        self.put = writer.log.appender.put

    def _open_parts(self, old: ReadOnlyParts | None = None) -> None:
        from rocketstore.queries import StoreReader

        parts = self._read_parts()
        parts.come_after(old)
        self._parts = parts
        self._reader = StoreReader(
            parts.log,
            parts.queues,
            parts.index,
            self._config,
            parts.dialect,
        )

    def _read_parts(self) -> ReadOnlyParts:
        """Read the directory; once more when its writer deleted a file in the meantime, cut the
        log's end, or went on between one queue and the next."""
        from rocketstore.commit_log import RecordGoneError
        from rocketstore.reader import QueuesMovedError, ReadOnlyParts

        tries = 0
        seen: list[list[Gap]] = []

        def accept_gaps(gaps: list[Gap]) -> bool:
            """Gaps that are still there are no writer's doing."""
            seen.append(gaps)
            return gaps in seen[:-1] or len(seen) >= _READING_TRIES

        while True:
            try:
                return ReadOnlyParts(
                    self._paths,
                    self._config,
                    derive=self._derive,
                    clock=self._clock,
                    progress=self._progress,
                    accept_gaps=accept_gaps,
                )
            except QueuesMovedError:
                continue
            except (FileNotFoundError, RecordGoneError):
                tries += 1
                if tries == _READING_TRIES or not self.path.is_dir():
                    raise

    # --- state --------------------------------------------------------------------------------

    def _use(self) -> StoreReader:
        """Every entry passes here."""
        if self._closed:
            raise StoreClosedError(f"the store {self.path} is closed")
        if self._forks != _forks:
            raise ForkedStoreError(
                f"the store {self.path} was opened by the parent process; open it here by its path"
            )
        return self._reader

    def _writing(self) -> StoreWriter:
        self._use()
        if self._writer is None:
            raise io.UnsupportedOperation(f'the store {self.path} is open with mode "r"')
        return self._writer

    def _refuse_put(self, *_: Any, **__: Any) -> Any:
        self._writing()

    def __enter__(self) -> DefaultMessageStore:
        self._use()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop services, sync everything, leave the directory clean. Idempotent.

        Messages and views in use stay valid. Raises ``ServiceFailedError`` when a service had
        failed; the store is closed all the same and ``abort`` stays.
        """
        if self._closed or self._forks != _forks:
            return
        if self._writer is not None:
            self._writer.refuse_interrupted_close()
        self._closed = True
        try:
            if self._async_appends is not None:
                self._async_appends.close()
        finally:  # also when an interrupt strikes: nobody could close it any more
            if self._writer is not None:
                self._writer.close()
            else:
                self._parts.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    @property
    def facts(self) -> StoreFacts:
        """What the files said when the store was opened: sizes, dialect and why, checkpoint."""
        return self._writer.facts if self._writer is not None else self._parts.facts

    @property
    def broker_version(self) -> str:
        """The RocketMQ version whose bytes are written and whose answers are given."""
        return self.facts.dialect.name

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening found and did."""
        return self._writer.report if self._writer is not None else self._parts.report

    @property
    def min_physical_offset(self) -> int:
        """Offset of the log's first byte, -1 for an empty log."""
        return self._use().log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Offset behind the log's last record."""
        return self._use().log.max_offset

    @property
    def flushed_offset(self) -> int:
        """The log is known to be on disk up to here."""
        return self._writing().flushed.offset

    @property
    def dispatch_behind_nbytes(self) -> int:
        """Bytes of the log that queues and index do not have yet."""
        self._use()
        if self._writer is None:
            return self._parts.behind_nbytes
        return max(0, self._writer.log.max_offset - self._writer.dispatcher.reput_offset)

    def runtime_info(self) -> dict[str, str]:
        """Return RocketMQ's runtime figures that this store keeps, all as text."""
        reader = self._use()
        info = {
            "bootTimestamp": str(self._boot_timestamp),
            "runtimeMs": str(int((time.monotonic() - self._opened_at) * 1000)),
            "commitLogMinOffset": str(reader.log.min_offset),
            "commitLogMaxOffset": str(reader.log.max_offset),
            "dispatchBehindBytes": str(self.dispatch_behind_nbytes),
            "brokerVersion": self.broker_version,
        }
        if self._writer is not None:
            appender = self._writer.log.appender
            info["putMessageTimesTotal"] = str(appender.put_times)
            info["putMessageSizeTotal"] = str(appender.put_nbytes)
            info["putMessageFailedTimes"] = str(appender.failed_times)
        return info

    def refresh(self) -> None:
        """Mode "r": look at the directory again, so that what was written since is shown.

        Whoever reads meanwhile goes on with what was shown before, and so does the store when it is
        gone or another is in its place (``FileNotFoundError``, ``MappedFileError``).
        """
        self._use()
        if self._writer is not None:
            raise io.UnsupportedOperation('refresh() is for mode "r"')
        with self._refresh_lock:  # what two of them replace would not be let go of
            old = self._parts
            refuse_vanished(self.path)
            self._open_parts(old)
        old.abandon()

    # --- writing ------------------------------------------------------------------------------

    def put_message(self, message: Any) -> Any:
        """Store one ``Message``; see ``put`` for outcomes and errors."""
        return self._writing().log.appender.put_message(message)

    def put_messages(self, batch: MessageBatch) -> Any:
        """Store a batch of one queue, all or nothing; returns one ``PutMessageResult``."""
        return self._writing().log.appender.put_messages(batch)

    def put_many(self, messages: Iterable[Any]) -> Any:
        """Store many messages, one lock per chunk; returns a ``PutManyResult``."""
        return self._writing().log.appender.put_many(messages)

    def put_columns(
        self, topic: str, offsets: Any, data: Any, *, queue_id: int = 0, **others: Any
    ) -> Any:
        """Store bodies that lie back to back in ``data``, cut at ``offsets`` (int32 or int64, n +
        1)."""
        return self._writing().log.appender.put_columns(
            topic, offsets, data, queue_id=queue_id, **others
        )

    def flush(self) -> int:
        """Sync log, queues and index, and write checkpoint and state; return the flushed offset."""
        writer = self._writing()
        writer.flush_thoroughly()
        return writer.flushed.offset

    def wait_dispatched(self, timeout_s: float | None = None) -> bool:
        """Wait until queues and index have everything that is in the log now.

        False after ``timeout_s`` seconds. Raises ``ServiceFailedError`` when dispatch failed.
        """
        self._use()
        if self._writer is None:
            return self._parts.behind_nbytes == 0
        try:
            return self._writer.wait_dispatched(timeout_s)
        except ValueError:
            self._use()  # a part was closed meanwhile: so was the store
            raise

    # --- reading ------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Topics that have a queue, system topics included."""
        return self._use().queues.topics()

    def queues(self, topic: str) -> list[int]:
        """Queue ids of a topic; empty for an unknown one."""
        return self._use().queues.queue_ids(topic)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset of the first message that is still there, 0 for an unknown queue."""
        check_int("queue_id", queue_id)
        queue = self._use().queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_index

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset of the next message, 0 for an unknown queue."""
        check_int("queue_id", queue_id)
        queue = self._use().queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_index

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        filter: MessageFilter | None = None,
    ) -> GetMessageResult:
        """Read messages of one queue from ``offset`` on, as a broker's pull does.

        Parameters
        ----------
        group : str
            Consumer group; does not change the answer.
        topic, queue_id
        offset : int
            Queue offset.
        max_count : int
        filter : MessageFilter, optional
            ``TagFilter("A || B")`` or any object with RocketMQ's two methods.

        Returns
        -------
        GetMessageResult
            An unknown queue answers NO_MESSAGE_IN_QUEUE and is not created.

        Raises
        ------
        CorruptMessageError
            When the first message to return is damaged.
        """
        if not (type(queue_id) is int and type(offset) is int and type(max_count) is int):
            for name, value in (
                ("queue_id", queue_id),
                ("offset", offset),
                ("max_count", max_count),
            ):
                check_int(name, value)
        if filter is not None and not hasattr(filter, "is_matched_by_consume_queue"):
            raise TypeError(f"filter must be a MessageFilter, not {type(filter).__name__}")
        if max_count < 0:
            raise ValueError(f"max_count is {max_count}; it must not be negative")
        return self._use().get_message(topic, queue_id, offset, max_count, filter)

    def query_message(
        self, topic: str, key: str, max_count: int = 32, begin: int = 0, end: int = MAX_TIMESTAMP
    ) -> QueryMessageResult:
        """Find messages by key as RocketMQ does: 64 at most, times in whole seconds, hash hits
        unchecked.

        ``find`` is the exact way. ``begin`` and ``end`` (inclusive) are epoch ms.
        """
        for name, value in (("max_count", max_count), ("begin", begin), ("end", end)):
            check_int(name, value)
        return self._use().query_message(topic, key, max_count, clamp(begin), clamp(end))

    def find(
        self,
        *,
        topic: str | None = None,
        key: str | None = None,
        unique_key: str | None = None,
        tags: str | None = None,
        body_contains: str | bytes | None = None,
        begin: int | None = None,
        end: int | None = None,
        on_corruption: str = "fail",
    ) -> Iterator[StoredMessage]:
        """Find messages exactly, uncapped, by ascending log offset.

        With ``topic`` and a key the index answers, and the log where no whole index file covers it;
        otherwise the log is read through.

        Parameters
        ----------
        topic, key, unique_key : str, optional
        tags : str, optional
            ``"A"`` or ``"A || B"``, compared with the message's own tag.
        body_contains : str or bytes-like, optional
            Occurs in the body as it is stored; a str is looked for as UTF-8.
        begin, end : int, optional
            Store times in epoch ms, ``begin <= time < end``.
        on_corruption : {"fail", "skip", "stop"}
            As in ``scan``: where the index names a record that cannot be read, or while the log is
            read through.

        Returns
        -------
        iterator of StoredMessage
            Those for which every condition given holds.

        Raises
        ------
        CorruptMessageError
            At a damaged place with ``"fail"``.
        """
        check_corruption_word(on_corruption)
        reader = self._use()
        text = unique_key if unique_key is not None else key
        others = (key if text is unique_key else None, tags, body_contains, begin, end)
        if type(topic) is str and type(text) is str and others == _NOTHING_ELSE:
            # What is asked most: the reader compares topic and key itself.
            return reader.find_by_key(
                topic, text, unique=text is unique_key, begin=0, end=MAX_TIMESTAMP,
                on_corruption=on_corruption,
            )  # fmt: skip
        from rocketstore.conditions import Conditions

        wanted = Conditions.of(
            topics=None if topic is None else [topic],
            key=key, unique_key=unique_key, tags=tags, body_contains=body_contains,
            begin=begin, end=end,
        )  # fmt: skip
        if topic is None or text is None:
            messages = self.scan(begin=begin, end=end, on_corruption=on_corruption)
            return filter(wanted.match, messages)
        first, last = begin if begin is not None else 0, end if end is not None else MAX_TIMESTAMP
        check_int("begin", first)
        check_int("end", last)
        first, last = clamp(first), clamp(last)
        hits = reader.find_by_key(
            topic, text, unique=text is unique_key, begin=first, end=last,
            on_corruption=on_corruption,
        )  # fmt: skip
        return filter(wanted.match, hits)

    def look_message_by_offset(self, physical_offset: int) -> StoredMessage | None:
        """Return the record that starts at ``physical_offset``, ``None`` when none does.

        Raises ``CorruptMessageError`` when a record starts there but is damaged.
        """
        check_int("physical_offset", physical_offset)
        return self._use().look_message_by_offset(physical_offset)

    def look_message_by_id(self, msg_id: str) -> StoredMessage | None:
        """Return the record an offsetMsgId names, ``None`` when it is not there.

        Raises ``ValueError`` for a text that is no message id.
        """
        _, offset = decode_message_id(msg_id)
        message = self._use().look_message_by_offset(offset)
        if message is None or message.msg_id != msg_id.upper():
            return None
        return message

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, boundary: str | None = None
    ) -> int:
        """Queue offset for an epoch-ms store time.

        ``boundary=None`` answers as the store's RocketMQ line does (up to 5.1.0 by file times,
        D-16); ``"lower"``: the smallest offset with time >= ``timestamp``; ``"upper"``: the
        largest with time <= ``timestamp``.
        """
        if boundary not in (None, "lower", "upper"):
            raise ValueError(f"boundary {boundary!r} is neither 'lower' nor 'upper'")
        check_int("timestamp", timestamp)
        return self._use().get_offset_in_queue_by_time(topic, queue_id, timestamp, boundary)

    def queue_view(self, topic: str, queue_id: int) -> QueueView:
        """Units of a queue from its min to its max offset as a structured array (a copy), shape
        (n,); ``first_offset`` of the array is the queue offset of row 0.

        Their fields are those of ``formats.CONSUME_QUEUE_UNIT``, of a BatchConsumeQueue those of
        ``formats.BATCH_QUEUE_UNIT``. An unknown queue is empty.
        """
        from rocketstore.queue_view import units_of

        check_int("queue_id", queue_id)
        return units_of(self._use().queues.get(topic, queue_id))

    def filter_units(
        self, topic: str, queue_id: int, tags: str | TagFilter
    ) -> numpy.ndarray[Any, Any]:
        """Queue offsets (int64) whose unit's tags code is that of one of ``tags``."""
        from rocketstore.queue_view import offsets_with_tags

        check_int("queue_id", queue_id)
        chosen = tags if isinstance(tags, TagFilter) else TagFilter(tags)
        return offsets_with_tags(self._use().queues.get(topic, queue_id), chosen)

    def index_offsets(
        self, topic: str, keys: Sequence[str]
    ) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        """Look up many keys at once.

        Returns
        -------
        (physical_offsets, row_splits) : int64 arrays
            Hits of key ``i`` are ``physical_offsets[row_splits[i]:row_splits[i + 1]]``, ascending;
            hash hits that were not compared with the messages.
        """
        from rocketstore.index_lookup import lookup_many

        return lookup_many(self._use().index, topic, keys)

    def verify(self, level: str = "crc", *, progress: Progress | None = None) -> VerifyReport:
        """Check every record, every queue unit and every index entry; see ``VerifyReport``."""
        from rocketstore.verify import verify

        self._use()
        with self._nothing_deleted():
            return verify(self, self._config, level=level, progress=progress)

    @property
    def reader(self) -> StoreReader:
        """The opened parts: log, queues and index (for tools)."""
        return self._use()

    def __repr__(self) -> str:
        if self._closed:
            return f"<DefaultMessageStore {str(self.path)!r} closed>"
        log = self._reader.log
        return (
            f"<DefaultMessageStore {str(self.path)!r} mode {self.mode!r}, RocketMQ "
            f"{self.broker_version}, log offsets {max(log.min_offset, 0)} to {log.max_offset}>"
        )

    def _repr_html_(self) -> str:
        from rocketstore.repr_html import store_html

        return store_html(self)


__all__ = ["DefaultMessageStore", "open"]
