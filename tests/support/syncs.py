"""Syncs of the log that wait until a test lets them go, and syncs that fail."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rocketstore.files.mapped_file import MappedFile
from rocketstore.log.writable_commit_log import WritableCommitLog

#: Nothing here takes so long, however busy the machine is.
LONG_S = 120.0


def sync_by_calls(patch: pytest.MonkeyPatch) -> None:
    """Let every sync of a log be a call of ``MappedFile.flush``, which tests replace.

    A log with SYNC_FLUSH otherwise syncs the segment that is being written without Python.
    """
    patch.setattr(WritableCommitLog, "sync_target", lambda _log: None)


class HeldSyncs:
    """While ``held`` is on, syncs of log segments wait; they fail once ``failing`` is set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.failing = False
        self.count = 0
        self._go_on = threading.Event()
        self._go_on.set()
        flush = MappedFile.flush

        def wait_and_flush(file: MappedFile, position: int) -> None:
            if "commitlog" in file.path.parts and position > file.flushed_position:
                self.count += 1
                self.begun.set()
                assert self._go_on.wait(LONG_S)
                if self.failing:
                    raise OSError(errno.EIO, "input/output error")
            flush(file, position)

        sync_by_calls(patch)
        patch.setattr(MappedFile, "flush", wait_and_flush)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Syncs wait until the block ends."""
        self.begun.clear()
        self._go_on.clear()
        try:
            yield
        finally:
            self._go_on.set()
