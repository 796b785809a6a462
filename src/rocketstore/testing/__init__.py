"""For tests of programs that use rocketstore: pytest fixtures, and ``check_invariants``.

``pytest_plugins = ["rocketstore.testing"]`` in a ``conftest.py`` brings in the fixtures of
``rocketstore.testing.fixtures``; ``check_invariants`` works without pytest.
"""

from __future__ import annotations

from rocketstore.testing.invariants import (
    INVARIANTS,
    Acknowledged,
    Report,
    Violation,
    check_invariants,
)

#: Read by pytest when this module is named as a plugin.
pytest_plugins = ("rocketstore.testing.fixtures",)

__all__ = ["INVARIANTS", "Acknowledged", "Report", "Violation", "check_invariants"]
