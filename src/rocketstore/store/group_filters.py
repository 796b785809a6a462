"""Filters of consumer groups in a store: which bit maps of ext units apply to them."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rocketstore.config import MessageStoreConfig
from rocketstore.config_managers.consumer_filters import ConsumerFilterManager
from rocketstore.config_managers.files import CONSUMER_FILTERS_FILE, config_path, read_table
from rocketstore.dispatch.dispatcher import BitMapFilters
from rocketstore.errors import CorruptionError, FilterSyntaxError, RocketStoreError
from rocketstore.filter.bloom_filter import BloomFilter, GroupBits
from rocketstore.filter.sql92.sql92_filter import Sql92Filter
from rocketstore.filter.sql92.stored import (
    EXPRESSION_TYPE,
    means_the_same_everywhere,
    program_of,
)

if TYPE_CHECKING:
    from rocketstore.config_managers.tables import ConsumerFilterData
    from rocketstore.dialect import Dialect
    from rocketstore.query.results import GetMessageResult
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.survey.facts import StoreFacts

T = TypeVar("T")
_log = logging.getLogger(__name__)
_FOR_EVER = 2**63 - 1
#: Attempts to read a table that is being replaced.
_READING_TRIES = 10


def bloom_filter_of(config: MessageStoreConfig) -> BloomFilter:
    """Return the bloom filter of a store's bit maps."""
    return BloomFilter.create(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )


class _Table(NamedTuple):
    """The groups' filters at one time.

    ``version`` changes before any bit map is made by other filters. Bit maps of messages that were
    stored after ``until`` may have been made by others already.
    """

    version: object
    manager: ConsumerFilterManager
    until: int


class GroupFilters:
    """The groups' filters for a store that is read: ``consumerFilter.json``, as it is now.

    Parameters
    ----------
    root : Path
    config : MessageStoreConfig
    facts : callable
        Returns the ``StoreFacts`` of the files that are read.

    Notes
    -----
    Threading: any number of threads.
    """

    def __init__(
        self, root: Path, config: MessageStoreConfig, facts: Callable[[], StoreFacts]
    ) -> None:
        self._root = root
        self._path = os.fspath(config_path(root, CONSUMER_FILTERS_FILE))
        self._bloom_filter = bloom_filter_of(config)
        self._facts = facts
        self._read: _Table | None = None

    def get_message(
        self,
        reader: StoreReader,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        message_filter: Any,
    ) -> GetMessageResult:
        """Read with ``StoreReader.get_message``, by the bit maps if they apply to the filter.

        If the groups' filters change meanwhile, read again without bit maps.
        """
        bits = version = None
        if isinstance(message_filter, Sql92Filter):
            table = self._table()
            bits, version = _bits(table, group, topic, message_filter), table.version
        call = (topic, queue_id, offset, max_count, message_filter)
        result = reader.get_message(*call, bits)
        if bits is not None and self._table().version != version:
            result = reader.get_message(*call)
        return result

    def _table(self) -> _Table:
        """Return the table on disk; it is empty if the file cannot be read."""
        for _ in range(_READING_TRIES):
            version = self._file_version()
            if self._read is None or self._read.version != version:
                manager = self._load()
                if self._file_version() != version:
                    continue
                self._read = _Table(version, manager, 0)
            facts = self._facts()
            # A broker changes its filters up to ten seconds before it writes them; rocketstore
            # writes them first.
            is_current = not facts.aborted or facts.valid_state is not None
            until = _FOR_EVER if is_current or version is None else version[0] // 1_000_000
            return self._read._replace(until=until)
        return _Table(None, self._empty(), 0)

    def _empty(self) -> ConsumerFilterManager:
        return ConsumerFilterManager(self._root, bloom_filter=self._bloom_filter)

    def _file_version(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _load(self) -> ConsumerFilterManager:
        manager = self._empty()
        path = manager.config_file_path
        try:
            # Not the ``.bak``: bit maps may have been made by filters that it does not have.
            content = read_table(path, self._root)
            if content is not None:
                manager.decode(content)
        except (OSError, ValueError, RocketStoreError) as error:
            _log.warning("%s: %s; bit maps are not used", path, error)
        return manager


class LiveGroupFilters(GroupFilters):
    """The groups' filters of a store that is open for writing; they make its bit maps.

    They are in memory, and the file is written before a change takes effect.

    Parameters
    ----------
    root : Path
    config : MessageStoreConfig
    facts : callable
    dialect : Dialect
    clock : callable
        Epoch ms.

    Notes
    -----
    Threading: changes only while nothing is dispatched; ``get_message`` at any time.
    """

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig,
        facts: Callable[[], StoreFacts],
        dialect: Dialect,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(root, config, facts)
        self._text_search = dialect.filter_text_search
        self._version = 0
        self._manager = ConsumerFilterManager(
            root, clock=clock, bloom_filter=self._bloom_filter, broker_version=dialect.name
        )

    def load(self, newest: int, *, is_doubtful: bool) -> list[str]:
        """Read the file; return notes about what is wrong with it.

        Parameters
        ----------
        newest : int
            No message in the store is newer.
        is_doubtful : bool
            The file may lack the last changes of a broker that was killed. Then, and when only the
            ``.bak`` can be read, the bit maps in the store are not used any longer.

        Raises
        ------
        MappedFileError, UnsafePathError, PermissionError
            As ``ConsumerFilterManager.load``.
        StoreFullError
            No room to write the file.
        """
        manager, notes = self._manager, []
        try:
            manager.load()
        except CorruptionError as error:
            return [f"{error}; no bit maps are written for the filters in it"]
        if manager.problem is not None:
            notes.append(f"{manager.problem}; {manager.loaded_path} is read instead")
        notes += [
            f"the filter of {group} on {topic} is not used: {reason}"
            for (topic, group), reason in manager.refused.items()
        ]
        notes += [
            f"the filter of {group} on {topic} sets no bit: RocketMQ refuses {expression!r:.200}"
            for topic, group, expression in self._refused_expressions()
        ]
        if manager.loaded_path not in (None, manager.config_file_path) or is_doubtful:
            manager.make_all_younger(newest)
            manager.persist()
        elif manager.refused:
            # Others must not take the bits of this store's bit maps for those of these filters.
            manager.persist()
        return notes

    def _refused_expressions(self) -> Iterator[tuple[str, str, str]]:
        for topic, groups in self._manager.filter_data_by_topic.items():
            for group, data in groups.items():
                if self._program(data) is None:
                    yield topic, group, data.expression

    def _program(self, data: ConsumerFilterData) -> bytes | None:
        if data.expression_type != EXPRESSION_TYPE:
            return None
        return program_of(data.expression, text_search=self._text_search)

    def for_dispatch(self) -> BitMapFilters:
        """Return the filters for the dispatcher."""
        bloom = self._bloom_filter
        rows = []
        for topic, groups in self._manager.filter_data_by_topic.items():
            for data in groups.values():
                assert data.bloom_filter_data is not None
                bits = bloom.bit_map(data.bloom_filter_data.bit_pos)
                name = topic.encode("utf-8", "replace")
                rows.append((name, self._program(data), bits, max(data.born_time, -_FOR_EVER)))
        return BitMapFilters(bloom.m // 8, rows)

    def change(self, change: Callable[[ConsumerFilterManager], T], apply: Callable[[], None]) -> T:
        """Change the filters, write the file, and then ``apply`` them to dispatch.

        After a ``FilterSyntaxError``, what was changed is written all the same. If the file cannot
        be written, nothing changes.
        """
        manager, refusal = self._manager, None
        former = copy.deepcopy(manager.filter_data_by_topic)
        try:
            try:
                result = change(manager)
            except FilterSyntaxError as error:
                refusal = error
            manager.persist()
            apply()
        except BaseException:
            manager.filter_data_by_topic = former
            with contextlib.suppress(OSError):
                manager.persist()
            raise
        finally:
            self._version += 1
        if refusal is not None:
            raise refusal
        return result

    def _table(self) -> _Table:
        return _Table(self._version, self._manager, _FOR_EVER)


def _bits(table: _Table, group: str, topic: str, message_filter: Sql92Filter) -> GroupBits | None:
    """Return the group's bits, if the bit maps were made by this filter's expression."""
    data = table.manager.get(topic, group)
    if (
        data is None
        or data.bloom_filter_data is None
        or data.expression_type != EXPRESSION_TYPE
        or data.expression != message_filter.expression
        or not means_the_same_everywhere(data.expression)
    ):
        return None
    found = data.bloom_filter_data
    return GroupBits(tuple(found.bit_pos), found.bit_num, data.born_time, table.until)
