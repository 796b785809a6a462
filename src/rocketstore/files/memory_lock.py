"""Locking pages into memory, where the system permits it."""

from __future__ import annotations

from typing import Any


class MemoryLock:
    """Locks mappings into memory; logs the first refusal and ignores the others.

    Notes
    -----
    Threading: any thread. Source: RocketMQ ``store/logfile/DefaultMappedFile.java`` ``mlock``.
    """

    def __init__(self) -> None:
        self._has_warned = False

    def lock(self, mapping: Any) -> bool:
        """Lock all pages of ``mapping`` into memory; return whether the system permits it."""
        try:
            mapping.lock(0, len(mapping))
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                import logging  # slow to import, and rarely needed

                logging.getLogger(__name__).warning(
                    "%d bytes are not locked into memory: %s; raise the limit of locked memory "
                    "(ulimit -l)",
                    len(mapping), error,
                )  # fmt: skip
            return False
        return True
