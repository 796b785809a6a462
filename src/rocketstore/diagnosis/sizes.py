"""The file sizes of a store: configured, detected, or the most frequent ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.config import (
    DEFAULT_BATCH_QUEUE_FILE_SIZE,
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    DEFAULT_CONSUME_QUEUE_FILE_SIZE,
    DEFAULT_EXT_FILE_SIZE,
    DEFAULT_HASH_SLOT_NUM,
    DEFAULT_INDEX_NUM,
    MessageStoreConfig,
)
from rocketstore.diagnosis.image import Entry, StoreImage
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.errors import RocketStoreError
from rocketstore.survey.facts import examine

if TYPE_CHECKING:
    from rocketstore.survey.facts import StoreFacts


@dataclass
class StoreSizes:
    """Sizes of files, in bytes, and where they are from.

    Attributes
    ----------
    segment, queue, batch, ext : int
    slots, entries : int
        Of an index file.
    dialect : Dialect
        Of the broker that wrote the store.
    dialect_reason : str
    assumed : list of str
        Sizes that no file and no configuration shows.
    problem : str
        Why the library does not open the store, ``""`` if it does.
    notes : list of str
    """

    segment: int = DEFAULT_COMMIT_LOG_FILE_SIZE
    queue: int = DEFAULT_CONSUME_QUEUE_FILE_SIZE
    batch: int = DEFAULT_BATCH_QUEUE_FILE_SIZE
    ext: int = DEFAULT_EXT_FILE_SIZE
    slots: int = DEFAULT_HASH_SLOT_NUM
    entries: int = DEFAULT_INDEX_NUM
    dialect: Dialect = field(default_factory=lambda: Dialect.for_version(DEFAULT_VERSION))
    dialect_reason: str = "the files do not show the version; the newest is assumed"
    assumed: list[str] = field(default_factory=list)
    problem: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def index(self) -> int:
        """Bytes of an index file."""
        return formats.index_file_nbytes(self.slots, self.entries)


def store_sizes(image: StoreImage, config: MessageStoreConfig) -> StoreSizes:
    """Return the sizes of a store; never raises for what its files hold."""
    sizes = StoreSizes()
    facts: StoreFacts | None = None
    try:
        facts = examine(image.paths, config, tolerate_unreadable=True)
    except (RocketStoreError, OSError, ValueError) as error:
        sizes.problem = str(error)
    if facts is not None:
        sizes.segment, sizes.queue = facts.commit_log_file_size, facts.consume_queue_file_size
        sizes.batch, sizes.ext = facts.batch_queue_file_size, facts.ext_file_size
        sizes.slots, sizes.entries = facts.index.pair
        sizes.dialect, sizes.dialect_reason = facts.dialect, facts.dialect_reason
        sizes.notes = list(facts.notes)
    else:
        sizes.segment = _shown(image.log) or sizes.segment
        queues = [one for files in image.queues.values() for one in files]
        sizes.queue = _shown(queues) or sizes.queue
    _take_config(sizes, config)
    if not _shown(image.log) and not config.mapped_file_size_commit_log:
        sizes.assumed.append("commitLog")
    if not any(image.queues.values()) and not config.mapped_file_size_consume_queue:
        sizes.assumed.append("consumeQueue")
    if not image.index and not config.max_index_num:
        sizes.assumed.append("index")
    return sizes


def _take_config(sizes: StoreSizes, config: MessageStoreConfig) -> None:
    if config.mapped_file_size_commit_log:
        sizes.segment = config.mapped_file_size_commit_log
    if config.mapped_file_size_consume_queue:
        unit = formats.CONSUME_QUEUE_UNIT.nbytes
        sizes.queue = -(-config.mapped_file_size_consume_queue // unit) * unit
    if config.mapper_file_size_batch_consume_queue:
        sizes.batch = config.mapper_file_size_batch_consume_queue
    if config.max_hash_slot_num and config.max_index_num:
        sizes.slots, sizes.entries = config.max_hash_slot_num, config.max_index_num
    if config.broker_version is not None:
        sizes.dialect = Dialect.for_version(config.broker_version, allow_newer=True)
        sizes.dialect_reason = "given as broker_version"


def _shown(files: Iterable[Entry]) -> int | None:
    """Return the most frequent length, the largest of several."""
    counts = Counter(one.nbytes for one in files if one.nbytes and one.start is not None)
    return max(counts, key=lambda nbytes: (counts[nbytes], nbytes), default=None)
