"""Keeping pages in memory, where the system permits it."""

from __future__ import annotations

from typing import Any


class MemoryLock:
    """Locks mappings into memory; a refusal is told once and changes nothing else.

    Notes
    -----
    Threading: any thread. Source: RocketMQ ``store/logfile/DefaultMappedFile.java`` ``mlock``.
    """

    def __init__(self) -> None:
        self._told = False

    def lock(self, mapping: Any) -> bool:
        """Keep all pages of ``mapping`` in memory, each from when it is there; whether that is
        permitted."""
        try:
            mapping.lock(0, len(mapping))
        except OSError as error:
            if not self._told:
                self._told = True
                import logging  # takes a while, and is mostly not needed

                logging.getLogger(__name__).warning(
                    "%d bytes are not locked into memory: %s; the limit is that of locked memory "
                    "(ulimit -l)",
                    len(mapping), error,
                )  # fmt: skip
            return False
        return True
