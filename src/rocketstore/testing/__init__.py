"""Helpers for tests of programs that use rocketstore: pytest fixtures and ``check_invariants``.

``pytest_plugins = ["rocketstore.testing"]`` in a ``conftest.py`` loads the fixtures of
``rocketstore.testing.fixtures``; ``check_invariants``, ``crash`` and ``VirtualClock`` work without
pytest.
"""

from __future__ import annotations

from rocketstore.testing.crashing import CRASH_POINTS, crash
from rocketstore.testing.invariants import (
    INVARIANTS,
    Acknowledged,
    Report,
    Violation,
    check_invariants,
)
from rocketstore.testing.virtual_clock import VirtualClock

#: Read by pytest if this module is listed as a plugin.
pytest_plugins = ("rocketstore.testing.fixtures",)

__all__ = [
    "CRASH_POINTS",
    "INVARIANTS",
    "Acknowledged",
    "Report",
    "Violation",
    "VirtualClock",
    "check_invariants",
    "crash",
]
