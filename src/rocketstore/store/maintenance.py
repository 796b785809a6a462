"""Keeping a store in order: deleting what has expired, and checking everything."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rocketstore.errors import ConfigError
from rocketstore.store.open_store import OpenStore

if TYPE_CHECKING:
    from rocketstore.arguments import Progress
    from rocketstore.cleaning.plan import CleanReport
    from rocketstore.verify.report import VerifyReport


class MaintainedStore(OpenStore):
    """The calls that an operator or a timer makes."""

    def clean_expired(self, *, what_if: bool = False) -> CleanReport:
        """Delete what has expired now, whatever the hour, or say what would go.

        Segments go whose newest message is older than ``file_reserved_time``, and, where the disk
        is fuller than ``disk_space_clean_forcibly_ratio``, ``delete_file_batch_max`` segments of
        any age, before the disk must be looked at again by another call: the oldest first,
        never the newest one, and none that is not in the queues and on disk. Files of queues and
        index follow that held nothing else. Messages and views in use stay valid, and hold the
        space of their files.

        Parameters
        ----------
        what_if : bool
            Change nothing; the only way in mode ``"r"``.

        Returns
        -------
        CleanReport
            Each file with its bytes, its oldest and newest store time, and why it goes.

        Raises
        ------
        io.UnsupportedOperation
            Mode ``"r"`` without ``what_if``.
        OSError, ServiceFailedError
            Syncing failed; a file that cannot be deleted stands in the report instead.

        Notes
        -----
        Threading: any thread; an arriving listener meets ``BlockingIOError`` while another thread
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
            self._paths.commit_log, self._paths.consume_queue, config, reader.dialect, lambda: 0
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
        """Let the cleaning service delete segments that are old enough at its next 20 looks,
        whatever the hour, as RocketMQ's command of this name does.

        Raises ``ConfigError`` when the service is off (``clean_resource_enable``).
        """
        writer = self._writing()
        if not writer.config.clean_resource_enable:
            raise ConfigError(
                "nobody cleans this store: clean_resource_enable is off; call clean_expired()"
            )
        writer.cleaning.log_service.ask()

    def _nothing_deleted(self) -> contextlib.AbstractContextManager[object]:
        """Keep expired files for a moment."""
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
