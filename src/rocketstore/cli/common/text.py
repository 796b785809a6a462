"""Make text from a store safe for terminals and for JSON."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Control characters, characters that reorder or hide text, line separators, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    short = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def escape(text: str, *, keep: str = "") -> str:
    r"""Return ``text`` with characters that a terminal interprets written out (``\x1b``).

    Characters in ``keep`` are not escaped.
    """
    return _UNSAFE.sub(lambda m: m[0] if m[0] in keep else _visible(m), text)


def command_line(*words: str | Path) -> str:
    """Return a command of rocketstore as a shell takes it; paths are given as ``Path``."""
    named = [path_word(os.fspath(one)) if isinstance(one, Path) else one for one in words]
    return join_words(["rocketstore", *named])


def path_word(path: str) -> str:
    """Return a path that is not taken for an option."""
    return os.path.join(os.curdir, path) if path.startswith("-") else path


def join_words(words: Iterable[str]) -> str:
    """Return words as a shell takes them; control characters and bytes that are no UTF-8 become
    ``$'\\n'``, as bash and zsh read it."""
    return " ".join(_ansi_quoted(one) if _UNSAFE.search(one) else shlex.quote(one) for one in words)


def _ansi_quoted(word: str) -> str:
    parts = []
    for char in word:
        if _UNSAFE.match(char):
            parts += [f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape")]
        else:
            parts.append("\\" + char if char in "'\\" else char)
    return f"$'{''.join(parts)}'"


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON that is safe to print: all control characters are escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    keep = "\n" if indent is not None else ""
    return _UNSAFE.sub(lambda m: m[0] if m[0] in keep else f"\\u{ord(m[0]):04x}", text)


def is_utf8(text: str) -> bool:
    """Return whether ``text`` can be encoded as UTF-8.

    Command-line bytes that are not UTF-8 arrive as lone surrogates, which cannot.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def preview(text: str, width: int) -> str:
    """Return at most ``width`` characters of ``text``, escaped; an ellipsis marks the omission."""
    escaped = escape(text[: width + 1])
    return escaped if len(escaped) <= width else escaped[: width - 1] + "…"


def hex_dump(data: bytes, limit: int = 256) -> list[str]:
    """Return lines of 16 bytes: position, hexadecimal, printable ASCII."""
    lines = []
    for at in range(0, min(len(data), limit), 16):
        row = data[at : min(at + 16, limit)]
        ascii_text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {ascii_text}")
    return lines
