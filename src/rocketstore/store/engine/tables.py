"""The tables of ``config`` that a writing store owns: groups' filters and committed offsets."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rocketstore.config import MessageStoreConfig
    from rocketstore.config_managers.consumer_filters import ConsumerFilterManager
    from rocketstore.config_managers.live_offsets import LiveConsumerOffsets
    from rocketstore.config_managers.tables import ConsumerFilterData
    from rocketstore.dialect import Dialect
    from rocketstore.directory.paths import StorePaths
    from rocketstore.dispatch.dispatcher import CommitLogDispatcher
    from rocketstore.dispatch.reput_service import ReputMessageService
    from rocketstore.queues.queue_table import QueueTable
    from rocketstore.recovery.report import RecoveryReport
    from rocketstore.store.group_filters import LiveGroupFilters
    from rocketstore.survey.facts import StoreFacts

T = TypeVar("T")
_log = logging.getLogger(__name__)


class WriterTables(ABC):
    """The part of ``StoreWriter`` that reads and changes tables of ``config``."""

    paths: StorePaths
    config: MessageStoreConfig
    dialect: Dialect
    facts: StoreFacts
    clock: Callable[[], int]
    queues: QueueTable
    report: RecoveryReport
    reput: ReputMessageService
    dispatcher: CommitLogDispatcher
    filters: LiveGroupFilters | None
    _write_lock: Any
    _has_doubtful_filters: bool
    _consumer_offsets: LiveConsumerOffsets | None = None

    @abstractmethod
    def _refuse_after_failure(self) -> None:
        """Raise if writing has failed."""

    @property
    def consumer_offsets(self) -> LiveConsumerOffsets:
        """The offsets that consumer groups and transactions have committed."""
        if self._consumer_offsets is None:
            from rocketstore.config_managers.live_offsets import LiveConsumerOffsets

            has_version, paths = self.dialect.version >= (5, 0, 0), self.paths
            made = LiveConsumerOffsets(paths.root, self.clock, has_version=has_version)
            with self._write_lock:
                self._consumer_offsets = self._consumer_offsets or made
        return self._consumer_offsets

    # --- filters ------------------------------------------------------------------------------

    @property
    def makes_bit_maps(self) -> bool:
        """Whether dispatch writes bit maps for the filters of groups."""
        return self.config.enable_calc_filter_bit_map and self.queues.ext_file_size > 0

    def _load_filters(self) -> LiveGroupFilters:
        from rocketstore.store.group_filters import LiveGroupFilters

        filters = LiveGroupFilters(
            self.paths.root, self.config, lambda: self.facts, self.dialect, self.clock
        )
        newest = max(self.clock(), self.report.newest_store_timestamp)
        notes = filters.load(newest, is_doubtful=self._has_doubtful_filters)
        for note in notes:
            _log.warning("%s", note)
        self.report.notes += notes
        return filters

    def register_filter(
        self, topic: str, group: str, expression: str, client_version: int | None = None
    ) -> ConsumerFilterData:
        """Register a consumer's filter; see ``ConsumerFilterManager.register``.

        The bit maps of all messages that are dispatched from now on respect it.
        """

        def register(manager: ConsumerFilterManager) -> ConsumerFilterData:
            # Not older than a message that was dispatched without it, whatever the clock says.
            newest = max(
                self.report.newest_store_timestamp, self.dispatcher.kernel.newest_ext_timestamp
            )
            return manager.register(
                topic, group, expression, client_version=client_version, born_after=newest
            )

        return self._change_filters(register)

    def un_register_filters(self, group: str) -> None:
        """Mark a group's filters as dead; a broker forgets them a day later."""
        self._change_filters(lambda manager: manager.un_register(group))

    def _change_filters(self, change: Callable[[ConsumerFilterManager], T]) -> T:
        with self.reput.paused():
            self._refuse_after_failure()
            filters = self.filters
            if filters is None:
                filters = self._load_filters()
            result = filters.change(change, partial(self._apply_filters, filters))
            self.filters = filters
            return result

    def _apply_filters(self, filters: LiveGroupFilters) -> None:
        if self.makes_bit_maps:
            self.dispatcher.set_filters(filters.for_dispatch())
