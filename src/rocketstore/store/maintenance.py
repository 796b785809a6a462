"""Maintenance of an open store: expired files, verifying all files, delayed messages."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rocketstore.errors import ConfigError
from rocketstore.store.open_store import OpenStore

if TYPE_CHECKING:
    from rocketstore.arguments import Progress
    from rocketstore.cleaning.plan import CleanReport
    from rocketstore.delay.report import DelayReport
    from rocketstore.statistics.store_stats import StoreStats
    from rocketstore.verify.report import VerifyReport


class MaintainedStore(OpenStore):
    """The calls that an operator or a timer makes."""

    def clean_expired(self, *, what_if: bool = False) -> CleanReport:
        """Delete expired files now, at any hour, or report which would be deleted.

        A segment is expired if its newest message is older than ``file_reserved_time``. If the disk
        is fuller than ``disk_space_clean_forcibly_ratio``, a call also deletes up to
        ``delete_file_batch_max`` segments of any age. The oldest segments are deleted first. The
        newest segment is never deleted, nor one that is not yet synced and dispatched. Queue and
        index files are deleted when all their messages are gone. Messages and views in use stay
        valid, and keep the disk space of their files.

        Parameters
        ----------
        what_if : bool
            Change nothing; required in mode ``"r"``.

        Returns
        -------
        CleanReport
            Each file with its size, its oldest and newest store time, and why it is deleted.

        Raises
        ------
        io.UnsupportedOperation
            Mode ``"r"`` without ``what_if``.
        OSError, ServiceFailedError
            Syncing failed. A file that cannot be deleted raises nothing; the report lists it.

        Notes
        -----
        Threading: any thread; an arriving listener gets ``BlockingIOError`` while another thread
        deletes. Source: RocketMQ
        ``store/DefaultMessageStore.java``; ages are those of the messages, not of the files (D-32).
        """
        if self._use() is not None and self._writer is None and what_if:
            return self._plan_reading()
        return self._writing().cleaning.clean(what_if=what_if)

    def _plan_reading(self) -> CleanReport:
        from rocketstore.cleaning.plan import Retention, SegmentAges, plan
        from rocketstore.files.disk_space import SpaceWatch

        reader, config = self._use(), self._config
        watch = SpaceWatch(
            self._paths.log_folders, self._paths.consume_queue, config, reader.dialect, lambda: 0
        )
        space = watch.judge()
        rule = Retention(
            now=self._clock(),
            reserved_ms=config.file_reserved_time * 3_600_000,
            at_once=config.clean_file_forcibly_enable and space.cleans_at_once,
            limit_offset=reader.log.max_offset,
            most_at_once=max(1, config.delete_file_batch_max),
        )
        report = plan(reader.log, reader.queues, reader.index, SegmentAges(reader.log), rule)
        report.used_ratio = space.log_ratio
        return report

    def execute_delete_files_manually(self) -> None:
        """Let the cleaning service delete expired segments at any hour in its next 20 runs, as
        RocketMQ's command of this name does.

        Raises ``ConfigError`` when the service is off (``clean_resource_enable``).
        """
        writer = self._writing()
        if not writer.config.clean_resource_enable:
            raise ConfigError(
                "the cleaning service is off (clean_resource_enable=False); call clean_expired()"
            )
        writer.cleaning.log_service.ask()

    def _nothing_deleted(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which no expired file is deleted."""
        writer = self._writer
        if writer is None:
            return contextlib.nullcontext()
        return writer.cleaning.nothing_else_deleted()

    def verify(self, level: str = "crc", *, progress: Progress | None = None) -> VerifyReport:
        """Check every record, every queue unit and every index entry; see ``VerifyReport``."""
        from rocketstore.store.verifying import verify

        self._use()
        with self._nothing_deleted():
            return verify(self, self._config, level=level, progress=progress)

    # --- statistics ---------------------------------------------------------------------------

    def stats(self) -> StoreStats:
        """Return the store's figures: puts and gets, rates, offsets, disk usage.

        Any mode. Counting costs puts and gets next to nothing: a service samples the totals each
        second. Mode ``"r"``, and a store without services, take samples only when they are asked:
        a window of 10 s then needs a call at least 10 s ago, or the opening.
        Threading: any number of threads.

        Returns
        -------
        StoreStats
        """
        self._use()
        from rocketstore.store.engine.measuring import gather

        return gather(self)

    def runtime_info(self) -> dict[str, str]:
        """Return ``stats()`` as text, under the keys of RocketMQ's ``getRuntimeInfo``.

        Keys of a broker's thread pools and of its daily totals are absent, and so are those of
        puts with mode ``"r"``.
        """
        from rocketstore.statistics.store_stats import runtime_texts

        return runtime_texts(self.stats())

    # --- delayed messages ---------------------------------------------------------------------

    def delays(self) -> DelayReport:
        """Return what waits for delivery in each delay level, and what is overdue.

        Any mode; mode ``"r"`` also while another process writes the store. The offsets in a
        broker's ``config/delayOffset.json`` are up to 10 s old: what the log shows as delivered
        since is not reported as waiting.

        Returns
        -------
        DelayReport

        Notes
        -----
        Threading: any thread.
        """
        self._use()
        from rocketstore.store.engine.delaying import report_delays

        return report_delays(self)

    def deliver_due(self, *, max_count: int | None = None) -> int:
        """Deliver the delayed messages that are due now; return how many were delivered.

        Messages that were put before the call are considered. Each is delivered once, those of a
        level in the order in which they were put. A message whose put fails is retried by later
        calls or by the service; after ``delay_max_attempts`` attempts it is parked (see
        ``delays().levels``). A slave delivers nothing.

        Parameters
        ----------
        max_count : int, optional
            Most messages to deliver.

        Raises
        ------
        io.UnsupportedOperation
            Mode ``"r"``.
        StoreFullError
            The disk is full; what was not delivered stays due.
        CorruptionError
            ``config/delayOffset.json`` and its ``.bak`` cannot be read.
        ServiceFailedError, StoreClosedError
            As ``put``.

        Notes
        -----
        Threading: any thread, also while the service delivers.
        """
        writer = self._writing()
        from rocketstore.store.engine.delaying import deliver

        return deliver(writer, max_count)
