"""The JSON of a broker's tables: a tolerant reader of bounded cost, and a strict writer.

RocketMQ writes its tables with fastjson 1 (to 5.3) or fastjson 2. Both deviate from RFC 8259:
integer keys have no quotes, and a repeated object becomes a ``$ref``. Users who edit such files
add comments and commas. The reader accepts all of that. The writer produces plain JSON, which
every version reads.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rocketstore.errors import DecodeError

#: Maximum size of a file.
MAX_NBYTES = 32 * 1024 * 1024
#: Maximum nesting of objects and arrays.
MAX_DEPTH = 100
#: Maximum cost of a file. An object or array costs 3; any other value, an escape or a comment 1.
MAX_COST = 1_500_000
#: Maximum length of a number; 64 bits need 20 characters, a double 25.
MAX_NUMBER_LENGTH = 40

_BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(rb"[ \t\n\r\f\x08]*")
_COMMAS = re.compile(rb"[ \t\n\r\f\x08,]*")
_WORD = re.compile(rb"[A-Za-z0-9_$%|+.\x80-\xff-]+")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLAIN = {b'"': re.compile(rb'[^"\\]*'), b"'": re.compile(rb"[^'\\]*")}
_ESCAPE = re.compile(
    rb"\\(?:u(?P<unit>[0-9A-Fa-f]{4})|x(?P<byte>[0-9A-Fa-f]{2})|(?P<letter>[^ux0-9]))", re.DOTALL
)
_LETTERS = {
    b"b": "\b",
    b"f": "\f",
    b"F": "\f",
    b"n": "\n",
    b"r": "\r",
    b"t": "\t",
    b"v": "\v",
    b'"': '"',
    b"'": "'",
    b"\\": "\\",
    b"/": "/",
}
_LITERALS: dict[bytes, Any] = {b"true": True, b"false": False, b"null": None}
_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(\d+)\]|\[(?:\"([^\"]*)\"|'([^']*)')\]", re.DOTALL)
_COST_OF_CONTAINER = 3


class JsonDialectError(DecodeError):
    """The text is not JSON of any known dialect, or is too large.

    Attributes
    ----------
    position : int
        Bytes from the start.
    reason : str
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason

    def __reduce__(self) -> tuple[type[JsonDialectError], tuple[int, str]]:
        return type(self), (self.position, self.reason)


class JsonTooLargeError(JsonDialectError):
    """The text exceeds a limit of this reader, although it may be valid JSON."""


def loads(content: bytes) -> Any:
    """Read one value; only blanks and comments may follow it.

    Accepted beyond RFC 8259: unquoted keys, single quotes, extra commas, comments, a BOM, ``+1``,
    ``\\xHH``, and ``$ref`` from the root. A ``$ref`` is replaced by its target. The last value of a
    repeated key is used. Bytes that are not UTF-8 become U+FFFD, as in RocketMQ.

    Parameters
    ----------
    content : bytes

    Returns
    -------
    dict, list, str, int, float, bool or None
        Keys are always strings, even in ``{0:1}``.

    Raises
    ------
    JsonDialectError
        With the position of the fault. The limits above bound time and memory for any input.
    """
    return loads_and_judge(content)[0]


def loads_and_judge(content: bytes) -> tuple[Any, JsonDialectError | None]:
    """Read one value as ``loads`` does; return it and the first fault that fastjson 2 rejects.

    fastjson 1, which RocketMQ uses up to 5.3, accepts extra commas and unquoted names.
    """
    if len(content) > MAX_NBYTES:
        raise JsonTooLargeError(MAX_NBYTES, f"{len(content)} bytes are more than {MAX_NBYTES}")
    parser = _Parser(content)
    return parser.document(), parser.refused


def dumps(value: Any) -> str:
    """Return a value as JSON that every RocketMQ reads: sorted quoted keys, ASCII, tabs.

    There is no final newline. Keys must be strings. Raises ``ValueError`` for numbers that JSON
    does not support.
    """
    return json.dumps(
        value,
        ensure_ascii=True,
        allow_nan=False,
        indent="\t",
        separators=(",", ":"),
        sort_keys=True,
    )


class _Reference:
    """A ``{"$ref": path}``, replaced after everything is read."""

    __slots__ = ("path", "position")

    def __init__(self, path: str, position: int) -> None:
        self.path = path
        self.position = position


class _Parser:
    """Parses the bytes once; ``at`` is the position of the next byte."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = len(_BOM) if content.startswith(_BOM) else 0
        self.cost = 0
        self.names: dict[bytes, str] = {}
        self.references = False
        self.refused: JsonDialectError | None = None

    def document(self) -> Any:
        self._skip()
        if self.at == len(self.content):
            raise JsonDialectError(self.at, "there is no value")
        value = self._value(0)
        self._skip()
        if self.at < len(self.content):
            raise self._error("unexpected text after the value")
        if self.references:
            value = _References(self, value).replaced()
        return value

    def charge(self, cost: int, position: int) -> None:
        """Add to the cost; raise if the limit is exceeded."""
        self.cost += cost
        if self.cost > MAX_COST:
            raise JsonTooLargeError(position, f"more than {MAX_COST} values, escapes and comments")

    def _error(self, reason: str) -> JsonDialectError:
        return JsonDialectError(self.at, reason)

    def _found(self) -> str:
        """Return the text at the position, for messages."""
        if self.at >= len(self.content):
            return "the end of the file"
        return ascii(self.content[self.at : self.at + 12].decode("utf-8", "replace"))

    def _skip(self) -> None:
        """Move to the next byte that is neither blank nor comment."""
        content = self.content
        while True:
            match = _SPACE.match(content, self.at)
            self.at = match.end() if match else self.at
            opening = content[self.at : self.at + 2]
            if opening in (b"//", b"/*"):
                self.charge(1, self.at)
            if opening == b"//":
                line = content.find(b"\n", self.at)
                self.at = len(content) if line < 0 else line + 1
            elif opening == b"/*":
                close = content.find(b"*/", self.at + 2)
                if close < 0:
                    raise self._error("unterminated comment")
                self.at = close + 2
            else:
                return

    def _skip_commas(self, allowed: int) -> int:
        """Move to the next byte that is not blank, comment or comma; return the commas skipped."""
        count = 0
        while True:
            match = _COMMAS.match(self.content, self.at)
            count += match[0].count(b",") if match else 0
            self.at = match.end() if match else self.at
            if self.content[self.at : self.at + 2] not in (b"//", b"/*"):
                break
            self._skip()
        if count > allowed:
            self._note_refused(self.at, "an extra comma")
        return count

    def _note_refused(self, position: int, reason: str) -> None:
        if self.refused is None:
            self.refused = JsonDialectError(position, reason)

    def _value(self, depth: int) -> Any:
        start = self.content[self.at : self.at + 1]
        if start in (b"{", b"["):
            if depth == MAX_DEPTH:
                raise self._error(f"more than {MAX_DEPTH} nested objects and arrays")
            self.charge(_COST_OF_CONTAINER, self.at)
            return self._object(depth) if start == b"{" else self._array(depth)
        self.charge(1, self.at)
        if start in _PLAIN:
            return self._string(start)
        word = _WORD.match(self.content, self.at)
        if word is None:
            raise self._error(f"expected a value, found {self._found()}")
        if word[0] in _LITERALS:
            self.at = word.end()
            return _LITERALS[word[0]]
        return self._number()

    def _object(self, depth: int) -> Any:
        start = self.at
        self.at += 1
        result: dict[str, Any] = {}
        allowed = 0
        while True:
            self._skip_commas(allowed)
            if self.content[self.at : self.at + 1] == b"}":
                self.at += 1
                break
            key = self._key()
            self._skip()
            if self.content[self.at : self.at + 1] != b":":
                raise self._error(f"expected ':', found {self._found()}")
            self.at += 1
            self._skip()
            result[key] = value = self._value(depth + 1)
            allowed = 2 if isinstance(value, dict | list | _Reference) else 1
            self._end_of_item(b"}")
        if len(result) == 1 and isinstance(result.get("$ref"), str):
            self.references = True
            return _Reference(result["$ref"], start)
        return result

    def _array(self, depth: int) -> list[Any]:
        self.at += 1
        result: list[Any] = []
        while True:
            count = self._skip_commas(1 if result else 0)
            if self.content[self.at : self.at + 1] == b"]":
                if count:
                    self._note_refused(self.at, "an extra comma")
                self.at += 1
                return result
            result.append(self._value(depth + 1))
            self._end_of_item(b"]")

    def _end_of_item(self, close: bytes) -> None:
        self._skip()
        if self.content[self.at : self.at + 1] not in (b",", close):
            raise self._error(f"expected ',' or '{close.decode()}', found {self._found()}")

    def _key(self) -> str:
        start = self.content[self.at : self.at + 1]
        if start in _PLAIN:
            return self._string(start)
        word = _WORD.match(self.content, self.at)
        if word is None:
            raise self._error(f"expected a key, found {self._found()}")
        if not _NUMBER.fullmatch(word[0]) and word[0] not in _LITERALS:
            self._note_refused(self.at, "an unquoted name")
        self.at = word.end()
        return word[0].decode("utf-8", "replace")

    def _string(self, quote: bytes) -> str:
        start = self.at
        match = _PLAIN[quote].match(self.content, start + 1)
        end = match.end() if match else start + 1
        if self.content[end : end + 1] == quote:
            self.at = end + 1
            return self._text(self.content[start + 1 : end])
        return self._escaped_string(quote, start, end)

    def _escaped_string(self, quote: bytes, start: int, end: int) -> str:
        parts = [self.content[start + 1 : end].decode("utf-8", "replace")]
        while self.content[end : end + 1] != quote:
            if end >= len(self.content):
                raise JsonDialectError(start, "unterminated string")
            self.charge(1, end)
            escape = _ESCAPE.match(self.content, end)
            if escape is None or (escape["letter"] or b"n") not in _LETTERS:
                raise JsonDialectError(end, "invalid escape")
            number = escape["unit"] or escape["byte"]
            parts.append(chr(int(number, 16)) if number else _LETTERS[escape["letter"]])
            match = _PLAIN[quote].match(self.content, escape.end())
            end = match.end() if match else escape.end()
            parts.append(self.content[escape.end() : end].decode("utf-8", "replace"))
        self.at = end + 1
        # Two escaped surrogates form one character; a single one is invalid.
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _text(self, content: bytes) -> str:
        """Decode a string; short ones, mostly names of fields, are cached."""
        if len(content) > 32:
            return content.decode("utf-8", "replace")
        text = self.names.get(content)
        if text is None:
            text = content.decode("utf-8", "replace")
            if len(self.names) < 1000:
                self.names[content] = text
        return text

    def _number(self) -> int | float:
        match = _NUMBER.match(self.content, self.at)
        if match is None:
            raise self._error(f"expected a value, found {self._found()}")
        text = match[0]
        if len(text) > MAX_NUMBER_LENGTH:
            raise self._error(f"a number of {len(text)} characters")
        if _WORD.match(self.content, match.end()):
            raise self._error(f"expected a value, found {self._found()}")
        value = int(text) if text.lstrip(b"+-").isdigit() else float(text)
        if isinstance(value, float) and abs(value) == float("inf"):
            raise self._error("a number that is too large")
        self.at = match.end()
        return value


class _References:
    """Replaces references by their targets; the copies count towards the cost."""

    def __init__(self, parser: _Parser, root: Any) -> None:
        self._parser = parser
        self._root = root

    def replaced(self) -> Any:
        """Return the root without references."""
        found: list[tuple[Any, Any, _Reference]] = []
        holder = {"$": self._root}
        waiting: list[Any] = [holder]
        while waiting:
            inner = waiting.pop()
            items = inner.items() if isinstance(inner, dict) else enumerate(inner)
            for key, value in items:
                if isinstance(value, _Reference):
                    found.append((inner, key, value))
                elif isinstance(value, dict | list):
                    waiting.append(value)
        targets = [self._target(reference) for _, _, reference in found]
        for (inner, key, _), target in zip(found, targets, strict=True):
            inner[key] = target
        return holder["$"]

    def _target(self, reference: _Reference) -> Any:
        value = self._root
        path = reference.path
        at = 1
        while path.startswith("$") and at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                break
            at = step.end()
            value = self._step(value, step, reference)
        if not path.startswith("$") or at < len(path):
            raise self._error(reference, "is not a path from the root")
        waiting = [value]
        while waiting:
            inner = waiting.pop()
            self._parser.charge(1, reference.position)
            if isinstance(inner, _Reference):
                raise self._error(reference, "refers to another reference")
            if isinstance(inner, dict | list):
                waiting += inner.values() if isinstance(inner, dict) else inner
        return value

    def _step(self, value: Any, step: re.Match[str], reference: _Reference) -> Any:
        self._parser.charge(1, reference.position)
        name = step[1] if step[1] is not None else step[3] if step[3] is not None else step[4]
        if step[2] is not None and isinstance(value, list) and len(step[2]) < 10:
            number = int(step[2])
            if number < len(value):
                return value[number]
        key = step[2] if name is None else re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)
        if isinstance(value, dict) and key in value:
            return value[key]
        raise self._error(reference, "has no target")

    def _error(self, reference: _Reference, what: str) -> JsonDialectError:
        return JsonDialectError(reference.position, f"$ref {reference.path[:80]!r} {what}")
