"""Text as in Java: decoding with its replacement rule, ``hashCode``, ``parseInt``."""

from __future__ import annotations

import re

#: Java replaces an encoded surrogate as one malformed group; Python would replace each byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()
_INTEGER = re.compile(rb"[+-]?[0-9]+")


def decode(data: bytes) -> str:
    """Return ``new String(data, UTF_8)``: malformed groups become U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def encode(text: str) -> bytes:
    """Return ``text.getBytes(UTF_8)``: an unpaired surrogate becomes ``?``."""
    return text.encode(errors="replace")


def hash_code(data: bytes) -> int:
    """Return ``new String(data, UTF_8).hashCode()``."""
    units = decode(data).encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) % 2**32
    return value - 2**32 if value >= 2**31 else value


def parse_int(data: bytes) -> int:
    """Return ``Integer.parseInt`` of ASCII digits, 0 if it would throw."""
    if not _INTEGER.fullmatch(data):
        return 0
    sign = -1 if data.startswith(b"-") else 1
    digits = data.lstrip(b"+-").lstrip(b"0")
    if len(digits) > len("2147483648"):
        return 0
    value = sign * int(digits or b"0")
    return value if -(2**31) <= value < 2**31 else 0
