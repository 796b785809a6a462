"""Checks of what jobs are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CORRUPTION = ("fail", "skip", "stop")


def nearest(word: str, words: Iterable[str]) -> str:
    """Say what could have been meant."""
    known = list(words)
    close = difflib.get_close_matches(word, known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}it must be one of {', '.join(known)}"


def check_corruption(policy: str, allowed: Iterable[str] = CORRUPTION) -> None:
    """Raise ``ValueError`` for a word that is no policy."""
    known = tuple(allowed)
    if policy not in known:
        raise ValueError(f"on_corruption is {policy!r}: {nearest(policy, known)}")
