"""Disk usage of a store, and the levels at which a broker reacts to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect

#: Value of ``used_ratio`` when the usage is unknown.
UNKNOWN = -1.0


class DiskSpace(NamedTuple):
    """One partition.

    Attributes
    ----------
    total_nbytes, used_nbytes : int
        Bytes of the partition, and how many of them are in use.
    usable_nbytes : int
        Free bytes that are not reserved for root.
    """

    total_nbytes: int
    used_nbytes: int
    usable_nbytes: int

    @property
    def used_ratio(self) -> float:
        """Share of used plus usable bytes in use, in whole percent rounded up: 0.75 for 74.2 %."""
        whole = self.used_nbytes + self.usable_nbytes
        return -(-100 * self.used_nbytes // whole) / 100 if whole > 0 else UNKNOWN


def disk_space(path: Path) -> DiskSpace:
    """Return the usage of the file system of ``path``. Raises ``OSError``."""
    about = os.statvfs(path)
    block = about.f_frsize
    used = (about.f_blocks - about.f_bfree) * block
    return DiskSpace(about.f_blocks * block, used, about.f_bavail * block)


@dataclass(frozen=True, slots=True)
class SpaceLevels:
    """Shares of a disk in use above which the store cleans up or refuses puts.

    Attributes
    ----------
    reclaim : float
        Old segments are deleted at any hour.
    forcibly : float
        Segments are deleted regardless of their age.
    warning : float
        Puts are refused.
    """

    reclaim: float
    forcibly: float
    warning: float

    @classmethod
    def of(cls, config: MessageStoreConfig, dialect: Dialect) -> SpaceLevels:
        """Return the levels of a configuration, clamped if the version clamps them."""
        reclaim = min(max(config.disk_max_used_space_ratio, 10), 95)
        forcibly = config.disk_space_clean_forcibly_ratio
        warning = config.disk_space_warning_level_ratio
        if dialect.clamps_disk_ratios:
            forcibly, warning = min(max(forcibly, 30), 85), min(max(warning, 35), 90)
        return cls(reclaim / 100, forcibly / 100, warning / 100)


class SpaceJudgement(NamedTuple):
    """What the disk usage requires.

    Attributes
    ----------
    log_ratio, queue_ratio : float
        Used share of the partitions of the log and of the queues, -1 if unknown.
    is_disk_full : bool
        Puts must be refused.
    cleans_at_once : bool
        Segments may be deleted regardless of their age.
    is_short : bool
        Segments that are old enough are deleted at any hour.
    """

    log_ratio: float
    queue_ratio: float
    is_disk_full: bool
    cleans_at_once: bool
    is_short: bool


class SpaceWatch:
    """Compares the disks of a store with the configured levels.

    Parameters
    ----------
    log_directories : sequence of Path
        Of several disks the one with the most room counts: a broker leaves out full ones.
    queue_directory : Path
        If a folder is missing, its parent is checked: a store without queues is not full.
    config : MessageStoreConfig
    dialect : Dialect
    own_nbytes : callable
        Returns the bytes of the store's files, for disks that several stores share.
    ask : callable, optional
        ``ask(path) -> DiskSpace``; default ``disk_space``.

    Notes
    -----
    Source: RocketMQ ``store/DefaultMessageStore.java`` ``isSpaceToDelete``; both partitions are
    judged before anything is decided (D-33).
    """

    def __init__(
        self,
        log_directories: Sequence[Path],
        queue_directory: Path,
        config: MessageStoreConfig,
        dialect: Dialect,
        own_nbytes: Callable[[], int],
        ask: Callable[[Path], DiskSpace] | None = None,
    ) -> None:
        self.levels = SpaceLevels.of(config, dialect)
        self._log_directories, self._queue_directory = log_directories, queue_directory
        self._config = config
        self._dialect = dialect
        self._own_nbytes = own_nbytes
        self._ask = disk_space if ask is None else ask

    def judge(self) -> SpaceJudgement:
        """Judge the disks as they are now."""
        logs = [self._space(directory) for directory in self._log_directories]
        log = min(logs, key=lambda space: UNKNOWN if space is None else space.used_ratio)
        spaces = [log, self._space(self._queue_directory)]
        ratios = [UNKNOWN if space is None else space.used_ratio for space in spaces]
        levels, top = self.levels, max(ratios)
        is_full, at_once = top > levels.warning, top > levels.forcibly or top > levels.warning
        unknown = min(ratios) < 0
        shares = self._dialect.clamps_disk_ratios and self._config.replicas_per_disk_partition > 1
        if shares and spaces[0] is not None and not at_once:
            share = spaces[0].total_nbytes / self._config.replicas_per_disk_partition
            logical = self._own_nbytes() / share if share else 1.0
            at_once = logical > self._config.logical_disk_space_clean_forcibly_threshold
            is_short = at_once or logical > levels.reclaim
        else:
            is_short = unknown or top > levels.reclaim
            is_short = is_short or (at_once and self._dialect.clamps_disk_ratios)
        return SpaceJudgement(ratios[0], ratios[1], is_full, at_once, is_short)

    def _space(self, directory: Path) -> DiskSpace | None:
        for path in (directory, directory.parent):
            try:
                return self._ask(path)
            except FileNotFoundError:
                continue
            except OSError:
                return None  # unknown: RocketMQ then deletes old segments
        return None
