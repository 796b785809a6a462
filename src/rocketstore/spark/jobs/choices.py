"""Check the arguments of jobs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CORRUPTION = ("fail", "skip", "stop")


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a hint at the nearest valid word, and all valid words."""
    known = list(words)
    close = difflib.get_close_matches(word, known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}it must be one of {', '.join(known)}"


def check_corruption(policy: str, allowed: Iterable[str] = CORRUPTION) -> None:
    """Raise ``ValueError`` for an unknown policy."""
    known = tuple(allowed)
    if policy not in known:
        raise ValueError(f"on_corruption is {policy!r}: {nearest(policy, known)}")
