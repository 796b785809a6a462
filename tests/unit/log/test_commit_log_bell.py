"""The bell: a lock that every append releases, under both bodies."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from support.appenders import Log, batch, message
from support.kernel_bodies import Bodies


@pytest.mark.parametrize("kind", ["put", "put_message", "put_messages", "put_many", "put_columns"])
def test_every_kind_of_put_rings(kernels: Bodies, kind: str) -> None:
    log = Log(kernels)
    calls: dict[str, Any] = {
        "put": lambda: log.appender.put("T", b""),
        "put_message": lambda: log.appender.put_message(message()),
        "put_messages": lambda: log.appender.put_messages(batch(message(), message())),
        "put_many": lambda: log.appender.put_many([message()] * 3),
        "put_columns": lambda: log.appender.put_columns("T", memoryview(bytes(8)).cast("i"), b""),
    }
    assert log.appender.bell is None
    calls[kind]()
    log.appender.bell = bell = threading.Lock()
    calls[kind]()
    bell.acquire()
    calls[kind]()
    assert bell.acquire(timeout=0)
    log.appender.bell = None
    calls[kind]()
    assert bell.locked()


def test_a_refused_message_does_not_ring(kernels: Bodies) -> None:
    log = Log(kernels)
    log.appender.bell = bell = threading.Lock()
    bell.acquire()
    assert not log.appender.put("T" * 128, b"").ok
    assert bell.locked()
    assert log.appender.put("T", b"").ok
    assert not bell.locked()


def test_a_bell_is_let_go_of(kernels: Bodies) -> None:
    """Another object in its place is the former's last reference."""
    log = Log(kernels)
    for _ in range(3):
        log.appender.bell = bell = threading.Lock()
        bell.acquire()
        log.appender.put("T", b"")
        assert not bell.locked()
