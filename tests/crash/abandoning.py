"""Leaving a store as a killed process does, without ending this process."""

from __future__ import annotations

import contextlib

import rocketstore
from rocketstore.errors import ServiceFailedError


def abandon(store: rocketstore.DefaultMessageStore) -> None:
    """Let go of everything without a sync, a mark or the removal of ``abort``."""
    writer = store._writer
    assert writer is not None
    for service in writer.services:
        service.stop()
    for service in writer.services:
        with contextlib.suppress(ServiceFailedError):
            service.shutdown()
    writer._closed = writer._released = True
    writer._parts.close()
    writer._lock.release()
    store._closed = True
