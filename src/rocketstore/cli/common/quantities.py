"""Times and sizes as people write and read them."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable

import typer

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-(\d{1,12})(ms|s|m|h|d|w)")
_SIZE = re.compile(r"(\d{1,18})\s*(|B|[KMGT]i?B?)", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_MAX_MS = 253_402_300_799_999


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


def format_time(timestamp: int) -> str:
    """Return an epoch-ms time as local ISO 8601 with zone; an invalid time as its number."""
    if not 0 < timestamp <= _MAX_MS:
        return str(timestamp)
    seconds, milliseconds = divmod(timestamp, 1000)
    try:
        moment = datetime.datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.replace(microsecond=milliseconds * 1000).isoformat(timespec="milliseconds")


def format_size(nbytes: float) -> str:
    """Return bytes with a binary unit: ``64.0 MiB``, ``320 bytes``."""
    if nbytes < 1024:
        return f"{int(nbytes)} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        nbytes /= 1024
        if nbytes < 1024:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1024:.1f} TiB"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return ``1 record`` or ``2,000 records``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
