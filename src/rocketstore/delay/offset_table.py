"""``delayOffset.json``: the offset table of a broker, with what rocketstore adds to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketstore.config_managers.managers import DelayOffsetManager
from rocketstore.dialect import Dialect
from rocketstore.errors import CorruptionError, MappedFileError, UnsafePathError

_log = logging.getLogger(__name__)
#: A member of the file that every broker ignores, and drops when it writes the file.
_OWN_MEMBER = "rocketstore"
#: A broker counts one change of its table's version for so many new offsets.
_VERSION_STEP = 200
#: Of a queue offset.
_MOST_DIGITS = 18


class DelayOffsetTable:
    """The persisted progress of delivery.

    Parameters
    ----------
    root : Path
        The store's root.
    clock : callable
        Epoch ms.

    Attributes
    ----------
    offsets : dict of int to int
        Delay level, offset of the next message to deliver.
    log_offset : int or None
        Deliveries before this log offset are counted in ``offsets``. ``None`` if the file does not
        exist, or a broker wrote it.
    parked : dict of int to dict of int to str
        Level, queue offset, why that message was not delivered.
    exists : bool
        Whether the file was there.

    Notes
    -----
    Threading: one caller at a time.
    """

    def __init__(self, root: Path, clock: Callable[[], int]) -> None:
        self._manager = DelayOffsetManager(root, clock=clock)
        self._clock = clock
        self._updates = 0
        self.offsets: dict[int, int] = {}
        self.log_offset: int | None = None
        self.parked: dict[int, dict[int, str]] = {}
        self.exists = False

    def load(self) -> None:
        """Read the file or its ``.bak``.

        Raises ``CorruptionError`` if a file exists, but none is good: with an empty table, a broker
        would deliver every message in the log again. ``MappedFileError`` if it can neither be read
        nor written.
        """
        folder = self._manager.config_file_path.parent
        if folder.exists() and not folder.is_dir():
            raise MappedFileError(f"{folder} is not a directory")
        self.exists = self._manager.load()
        if self._manager.problem is not None:
            _log.warning("%s; its .bak is read instead", self._manager.problem)
        self.offsets = {
            level: offset
            for level, offset in self._manager.offset_table.items()
            if level >= 1 and offset >= 0
        }
        own = self._manager.others.get(_OWN_MEMBER)
        self.log_offset, self.parked = _own_content(own)

    def save(self, dialect: Dialect, log_offset: int | None, updates: int) -> None:
        """Replace the file atomically and durably.

        Parameters
        ----------
        dialect : Dialect
        log_offset : int or None
        updates : int
            Offsets that changed since the last call; they count for the version.
        """
        manager = self._manager
        manager.offset_table = dict(sorted(self.offsets.items()))
        steps, self._updates = divmod(self._updates + updates, _VERSION_STEP)
        if steps:
            manager.data_version.next_version(self._clock(), steps)
        manager.has_version = dialect.version >= (5, 0, 0)
        own: dict[str, Any] = {} if log_offset is None else {"logOffset": log_offset}
        if self.parked:
            own["parked"] = {
                str(level): {str(offset): why for offset, why in sorted(units.items())}
                for level, units in sorted(self.parked.items())
            }
        manager.others.pop(_OWN_MEMBER, None)
        if own:
            manager.others[_OWN_MEMBER] = own
        manager.persist()
        self.log_offset = log_offset
        self.exists = True


def _own_content(own: Any) -> tuple[int | None, dict[int, dict[int, str]]]:
    """Return log offset and parked messages; nothing of what another program wrote there."""
    if not isinstance(own, dict):
        return None, {}
    log_offset = own.get("logOffset")
    if not isinstance(log_offset, int) or isinstance(log_offset, bool) or log_offset < 0:
        log_offset = None
    parked: dict[int, dict[int, str]] = {}
    levels = own.get("parked")
    for level, units in levels.items() if isinstance(levels, dict) else ():
        for offset, why in units.items() if isinstance(units, dict) else ():
            if _is_number(level) and _is_number(offset) and isinstance(why, str):
                parked.setdefault(int(level), {})[int(offset)] = why
    return log_offset, parked


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def load_for_reading(root: Path, clock: Callable[[], int]) -> tuple[DelayOffsetTable, str | None]:
    """Return the table for a report, and why it is empty although a file exists."""
    table = DelayOffsetTable(root, clock)
    try:
        table.load()
    except (CorruptionError, MappedFileError, UnsafePathError, OSError) as error:
        return DelayOffsetTable(root, clock), str(error)
    return table, None
