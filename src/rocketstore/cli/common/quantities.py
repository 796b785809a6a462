"""Times and sizes as people write and read them."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable

import typer

from rocketstore.display.quantities import counted as counted
from rocketstore.display.quantities import format_size as format_size
from rocketstore.display.quantities import format_time as format_time

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-(\d{1,12})(ms|s|m|h|d|w)")
_SIZE = re.compile(r"(\d{1,18})\s*(|B|[KMGT]i?B?)", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def now_ms() -> int:
    """Return the system time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def parse_time(text: str, *, clock: Callable[[], int] = now_ms) -> int:
    """Return the epoch milliseconds of ``1700000000000``, ``2026-01-31T12:00`` or ``-2h``.

    ``-2h`` means two hours ago; ISO 8601 without a zone is local time. Raises
    ``typer.BadParameter``.
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 19:
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago:
        return clock() - int(ago[1]) * _UNITS_MS[ago[2]]
    try:
        moment = datetime.datetime.fromisoformat(text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{text!r} is not a time: give epoch milliseconds (1700000000000), ISO 8601 "
            "(2026-01-31T12:00:00+01:00) or a time ago (-2h, -30m, -7d)"
        ) from None


def parse_span(text: str) -> int:
    """Return the milliseconds of ``500ms``, ``1m``, ``2h``, ``1d``. Raises
    ``typer.BadParameter``."""
    match = _AGO.fullmatch("-" + text.strip())
    if match is None or int(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a duration: give 500ms, 30s, 5m, 1h or 1d")
    return int(match[1]) * _UNITS_MS[match[2]]


def parse_size(text: str) -> int:
    """Return the bytes of ``64MiB``, ``1GB`` or ``4096``. Raises ``typer.BadParameter``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is not a size: give bytes, or a number with KiB, MiB, GiB"
        )
    unit = match[2].upper()
    base = 1000 if unit.endswith("B") and len(unit) == 2 else 1024
    return int(match[1]) * int(base ** _POWERS[unit.rstrip("B").rstrip("I")])
