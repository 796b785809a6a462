"""What an error says of the one that caused it."""

from __future__ import annotations


def told(error: BaseException | None) -> str:
    """What another error says of ``error``: its type, and its own words where it has any."""
    words = str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
