"""Builds the broker's tables below ``config``: from their ``.bak``, from the queues, or clamped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketstore import formats
from rocketstore.config_managers import json_dialect, table_types
from rocketstore.config_managers.files import BACKUP_SUFFIX, TOPICS_FILE, read_table
from rocketstore.config_managers.managers import (
    TOPIC_GROUP_SEPARATOR,
    ConfigManager,
    ConsumerOffsetManager,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from rocketstore.config_managers.tables import TopicConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import CorruptionError, RepairRefusedError
from rocketstore.files.durable import make_directories, write_file
from rocketstore.mending.steps import FileChange, content_of

Bounds = Callable[[str, int], tuple[int, int] | None]
_OWN = (
    TopicConfigManager,
    SubscriptionGroupManager,
    ConsumerOffsetManager,
    LmqConsumerOffsetManager,
    DelayOffsetManager,
)
#: Beginnings of a broken table that are tried.
_MOST_TRIED = 400


@dataclass
class TableChange:
    """A table that changes. ``kind``: of the step."""

    kind: str
    reason: str
    sentence: str
    files: list[FileChange]


class TableBuild:
    """Builds tables below ``target``.

    Parameters
    ----------
    root, target : Path
    dialect : Dialect
        Of the broker, which refuses some values.
    """

    def __init__(self, root: Path, target: Path, dialect: Dialect) -> None:
        self._root = root
        self._dialect = dialect
        self._target = target
        self._managers = {kind.FILE_NAME: kind for kind in _OWN}

    def restore(self, name: str, reason: str, queues: Mapping[tuple[str, int], str]) -> TableChange:
        """Build a table that cannot be read: from its ``.bak``, else from what is left of it.

        Parameters
        ----------
        name : str
            The table's file name.
        reason : str
            The finding's code.
        queues : dict of (topic, queue id) to str
            The queues of the log and their type, for ``topics.json``.
        """
        backup = self._content(name + BACKUP_SUFFIX)
        if backup and self._manager(name, backup) is not None:
            change = self._file(name, backup)
            sentence = f"{name} is taken from its .bak"
            return TableChange("config.restore", reason, sentence, [change])
        if name == TOPICS_FILE:
            manager: ConfigManager = TopicConfigManager(self._root)
            count = _add_topics(manager, queues)
            sentence = (
                f"{name} is made from the {count} topics that have queues; perm is read-write"
            )
        else:
            manager, sentence = self._readable_part(name)
        files = [self._file(name, manager.encode().encode())]
        if backup is not None:
            place = self._path(name + BACKUP_SUFFIX)
            change = FileChange(self._relative(place), content_of(place, self._root), None)
            files.append(change)
        return TableChange("config.make", reason, sentence, files)

    def _readable_part(self, name: str) -> tuple[ConfigManager, str]:
        """Return a table of the complete entries of a broken one, and the step's sentence."""
        if name not in self._managers:
            raise RepairRefusedError(
                f"config/{name} and its .bak cannot be read, and nothing in the store shows what "
                "they held; restore the table from a backup, or move both away to start without it"
            )
        for source in (name, name + BACKUP_SUFFIX):
            content = self._content(source) or b""
            for part in complete_beginnings(content):
                manager = self._manager(name, part)
                if manager is not None:
                    return manager, (
                        f"{name} keeps the entries that are complete in the first {len(part)} "
                        f"bytes of {source}; the rest of the table is lost"
                    )
        return self._managers[name](self._root), (
            f"{name} is made without an entry: no entry of it can be read"
        )

    def _manager(self, name: str, content: bytes) -> ConfigManager | None:
        """Return the table, ``None`` if a broker cannot read it."""
        try:
            document = json_dialect.loads(content)
            if not isinstance(document, dict):
                return None
            check = table_types.TYPES.get(name)
            if check is not None:
                check(document, "$", self._dialect)
            manager = self._managers.get(name, DelayOffsetManager)(self._root)
            if name in self._managers:
                manager.decode(content)
            return manager
        except ValueError:
            return None

    # --- corrected tables -----------------------------------------------------------------------

    def add_topics(
        self, names: Iterable[str], queues: Mapping[tuple[str, int], str]
    ) -> TableChange:
        """Add topics that have queues to ``topics.json``."""
        manager = self._loaded(TopicConfigManager)
        wanted = set(names)
        count = _add_topics(manager, {key: queues[key] for key in queues if key[0] in wanted})
        change = self._file(TOPICS_FILE, manager.encode().encode())
        sentence = f"{TOPICS_FILE} gets {count} topics that have queues"
        return TableChange("config.make", "config.topic-missing", sentence, [change])

    def clamp(self, name: str, reason: str, bounds: Bounds) -> TableChange | None:
        """Move offsets outside their queue to the queue's nearest end."""
        kind = self._managers[name]
        manager = self._loaded(kind)
        count = 0
        if isinstance(manager, DelayOffsetManager):
            for level, offset in manager.offset_table.items():
                low, high = bounds(formats.TOPIC_SCHEDULE, level - 1) or (0, 0)
                if not 0 <= offset <= high:
                    manager.offset_table[level] = min(max(offset, low), high)
                    count += 1
        elif isinstance(manager, ConsumerOffsetManager):
            for table in (manager.offset_table, manager.pull_offset_table):
                for key, offsets in table.items():
                    count += _clamp(key.partition(TOPIC_GROUP_SEPARATOR)[0], offsets, bounds)
        if not count:
            return None
        change = self._file(name, manager.encode().encode())
        sentence = f"{name}: {count} offsets outside their queue are moved to its nearest end"
        return TableChange("config.clamp", reason, sentence, [change])

    def _loaded(self, kind: type[ConfigManager]) -> ConfigManager:
        manager = kind(self._root)
        name = manager.FILE_NAME
        made = self._target / formats.CONFIG_DIR / name
        content = made.read_bytes() if made.exists() else None
        for source in (name, name + BACKUP_SUFFIX):
            content = content or self._content(source)
            if content and self._manager(name, content) is not None:
                manager.decode(content)
                break
            content = None
        return manager

    # --- files ----------------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self._root / formats.CONFIG_DIR / name

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _content(self, name: str) -> bytes | None:
        try:
            return read_table(self._path(name), self._root)
        except CorruptionError:
            return b""

    def _file(self, name: str, content: bytes) -> FileChange:
        place = self._path(name)
        path = self._target / formats.CONFIG_DIR / name
        make_directories(path.parent, self._target)
        write_file(path, content)
        made = content_of(path, self._target)
        return FileChange(self._relative(place), content_of(place, self._root), made)


def _add_topics(manager: ConfigManager, queues: Mapping[tuple[str, int], str]) -> int:
    assert isinstance(manager, TopicConfigManager)
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    for topic, count in sorted(counts.items()):
        kind = queues.get((topic, count - 1), "")
        attributes = {"queue.type": kind} if kind else {}
        manager.topic_config_table[topic] = TopicConfig(
            topic_name=topic,
            read_queue_nums=count,
            write_queue_nums=count,
            attributes=attributes,
        )
    return len(counts)


def _clamp(topic: str, offsets: dict[int, int], bounds: Bounds) -> int:
    count = 0
    for queue_id, offset in offsets.items():
        found = bounds(topic, queue_id)
        if offset < 0 or (found is not None and not found[0] <= offset <= found[1]):
            low, high = found or (0, 0)
            offsets[queue_id] = min(max(offset, low), high)
            count += 1
    return count


def complete_beginnings(content: bytes) -> Iterable[bytes]:
    """Yield texts of JSON that end after a complete member of ``content``, the longest first.

    A number counts only if a comma or bracket follows it: otherwise digits may be missing.
    """
    places: list[tuple[int, bytes]] = []
    closers: list[bytes] = []
    in_text = escaped = False
    for at, byte in enumerate(content):
        if in_text:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_text = False
        elif byte == 0x22:
            in_text = True
        elif byte in b"{[":
            closers.append(b"}" if byte == 0x7B else b"]")
        elif byte in b"}]":
            if not closers:
                break
            closers.pop()
            places.append((at + 1, b"".join(reversed(closers))))
        elif byte == 0x2C:
            places.append((at, b"".join(reversed(closers))))
    for at, end in reversed(places[-_MOST_TRIED:]):
        yield content[:at] + end
