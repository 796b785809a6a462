"""Sizes, counts and spans of time as people read them."""

from __future__ import annotations

import datetime

_MAX_MS = 253_402_300_799_999


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


def format_span(milliseconds: float) -> str:
    """Return a duration as people read it: ``320ms``, ``4.2s``, ``3h 20m``, ``12d 4h``."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f}ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes}m"
    return f"{hours // 24}d {hours % 24}h"


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
