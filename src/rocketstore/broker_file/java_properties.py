"""The text format of ``java.util.Properties``, in which a broker's options are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rocketstore.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\", **{char: f"\\{letter}" for letter, char in _CONTROLS.items()}}
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class Property(NamedTuple):
    """One entry: its key and value, and the line on which it begins, from 1."""

    key: str
    value: str
    line: int


def parse(text: str, first_line: int = 1) -> Iterator[Property]:
    """Yield the entries of a text in order; a repeated key is yielded each time.

    ``first_line`` is the number of the text's first line.

    Raises ``ConfigError`` with ``line`` for a ``\\u`` without four hexadecimal digits, at which
    Java reads nothing of the file.
    """
    for number, logical in _logical_lines(text):
        line = number + first_line - 1
        key = _KEY.match(logical)
        assert key is not None
        separator = _SEPARATOR.match(logical, key.end())
        assert separator is not None
        yield Property(_unescaped(key[0], line), _unescaped(logical[separator.end() :], line), line)


def raw_entries(text: str) -> Iterator[tuple[int | None, str]]:
    """Yield the text in pieces as they are written: each entry with the line on which it begins,
    and ``None`` with each comment and empty line. Lines of one entry are separated by line feeds.
    """
    lines = _LINE_END.split(text)
    if lines and not lines[-1]:
        lines.pop()
    begins = [line for line, _ in _logical_lines("\n".join(lines))]
    at = 0
    for number in [*begins, len(lines) + 1]:
        while at < number - 1:
            yield None, lines[at]
            at += 1
        if number > len(lines):
            return
        parts = [lines[at]]
        while (len(lines[at]) - len(lines[at].rstrip("\\"))) % 2 and at + 1 < len(lines):
            at += 1
            parts.append(lines[at])
        at += 1
        yield number, "\n".join(parts)


def escape_value(value: str) -> str:
    """Return ``value`` as it is written after ``key=``: printable ASCII."""
    units = value.encode("utf-16-be", "surrogatepass")
    chars = (chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))
    return "".join(
        _WRITTEN.get(char) or (char if " " <= char <= "~" else f"\\u{ord(char):04x}")
        for char in chars
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are not comments, with their numbers; a line that ends in an odd number of
    backslashes continues on the next."""
    parts: list[str] | None = None
    begin = 0
    for number, line in enumerate(_LINE_END.split(text), start=1):
        line = line.lstrip(_BLANKS)
        if parts is None:
            if not line or line[0] in "#!":
                continue
            parts, begin = [], number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            if len(parts) == 1 and not parts[0]:
                parts = None  # nothing begun: the next line may be a comment
            continue
        logical = "".join((*parts, line))
        parts = None
        if logical:
            yield begin, logical
    if parts is not None:
        yield begin, "".join(parts)


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def char(match: re.Match[str]) -> str:
        if match[1] is None:
            return _CONTROLS.get(match[2], match[2])
        if not _HEX.fullmatch(match[1]):
            raise ConfigError(
                f"\\u{match[1]!s} has no four hexadecimal digits; RocketMQ refuses such a file. "
                "Write a backslash as \\\\",
                line=line,
            )
        return chr(int(match[1], 16))

    found = _ESCAPE.sub(char, text)
    return _SURROGATES.sub(
        lambda pair: pair[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be"), found
    )
