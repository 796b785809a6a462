"""The JSON of a broker's tables: a tolerant reader of bounded cost, and a strict writer.

RocketMQ writes its tables with fastjson 1 (to 5.3) or fastjson 2, and both depart from RFC 8259:
integer keys stand without quotes, an object reached twice is a ``$ref``. People who edit such
files add comments and commas. All of that is read; what is written is plain JSON, which every
version reads.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rocketstore.errors import DecodeError

#: Bytes of a file.
MAX_NBYTES = 32 * 1024 * 1024
#: Objects and arrays inside each other.
MAX_DEPTH = 100
#: Work for one file: an object or array costs 3, any other value, an escape and a comment 1.
MAX_COST = 1_500_000
#: Characters of a number; 64 bits need 20, a double 25.
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
    """Text that is no JSON of any known dialect, or that is too large.

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
    """Text that is larger than what is read here; it may well be JSON."""


def loads(content: bytes) -> Any:
    """Read one value; nothing but blanks and comments may follow it.

    Accepted beyond RFC 8259: keys without quotes, single quotes, commas too many, comments, a BOM,
    ``+1``, ``\\xHH``, and ``$ref`` from the root, which is replaced by what it names. A key given
    twice has its last value. Bytes that are no UTF-8 become U+FFFD, as in RocketMQ.

    Parameters
    ----------
    content : bytes

    Returns
    -------
    dict, list, str, int, float, bool or None
        Keys are always text, also ``{0:1}``'s.

    Raises
    ------
    JsonDialectError
        With the position. Time and memory are bounded by the limits above for any input.
    """
    return loads_and_judge(content)[0]


def loads_and_judge(content: bytes) -> tuple[Any, JsonDialectError | None]:
    """Read one value as ``loads`` does; return it, and what fastjson 2 refuses of it, if anything.

    fastjson 1, which RocketMQ has up to 5.3, passes over commas too many and names without quotes.
    """
    if len(content) > MAX_NBYTES:
        raise JsonTooLargeError(MAX_NBYTES, f"{len(content)} bytes are more than {MAX_NBYTES}")
    parser = _Parser(content)
    return parser.document(), parser.refused


def dumps(value: Any) -> str:
    """Write a value as every RocketMQ reads it: quoted keys, sorted; ASCII; tabs; no last newline.

    Keys are text; ``ValueError`` for numbers that JSON does not have.
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
    """A ``{"$ref": path}`` until everything is read."""

    __slots__ = ("path", "position")

    def __init__(self, path: str, position: int) -> None:
        self.path = path
        self.position = position


class _Parser:
    """One pass over the bytes; ``at`` is the position of the next one."""

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
            raise self._error("there is more behind the end of the value")
        if self.references:
            value = _References(self, value).replaced()
        return value

    def charge(self, cost: int, position: int) -> None:
        """Count work; too much of it is an error."""
        self.cost += cost
        if self.cost > MAX_COST:
            raise JsonTooLargeError(position, f"more than {MAX_COST} values, escapes and comments")

    def _error(self, reason: str) -> JsonDialectError:
        return JsonDialectError(self.at, reason)

    def _found(self) -> str:
        """What is at hand, for messages."""
        if self.at >= len(self.content):
            return "the end of the file"
        return ascii(self.content[self.at : self.at + 12].decode("utf-8", "replace"))

    def _skip(self) -> None:
        """Go to the next byte that is neither blank nor comment."""
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
                    raise self._error("a comment does not end")
                self.at = close + 2
            else:
                return

    def _skip_commas(self, allowed: int) -> int:
        """Go to the next byte that is no comma either; return the number of commas."""
        count = 0
        while True:
            match = _COMMAS.match(self.content, self.at)
            count += match[0].count(b",") if match else 0
            self.at = match.end() if match else self.at
            if self.content[self.at : self.at + 2] not in (b"//", b"/*"):
                break
            self._skip()
        if count > allowed:
            self._note_refused(self.at, "a comma too many")
        return count

    def _note_refused(self, position: int, reason: str) -> None:
        if self.refused is None:
            self.refused = JsonDialectError(position, reason)

    def _value(self, depth: int) -> Any:
        start = self.content[self.at : self.at + 1]
        if start in (b"{", b"["):
            if depth == MAX_DEPTH:
                raise self._error(f"more than {MAX_DEPTH} objects and arrays inside each other")
            self.charge(_COST_OF_CONTAINER, self.at)
            return self._object(depth) if start == b"{" else self._array(depth)
        self.charge(1, self.at)
        if start in _PLAIN:
            return self._string(start)
        word = _WORD.match(self.content, self.at)
        if word is None:
            raise self._error(f"{self._found()} where a value should be")
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
                raise self._error(f"{self._found()} where ':' should be")
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
                    self._note_refused(self.at, "a comma too many")
                self.at += 1
                return result
            result.append(self._value(depth + 1))
            self._end_of_item(b"]")

    def _end_of_item(self, close: bytes) -> None:
        self._skip()
        if self.content[self.at : self.at + 1] not in (b",", close):
            raise self._error(f"{self._found()} where ',' or '{close.decode()}' should be")

    def _key(self) -> str:
        start = self.content[self.at : self.at + 1]
        if start in _PLAIN:
            return self._string(start)
        word = _WORD.match(self.content, self.at)
        if word is None:
            raise self._error(f"{self._found()} where a key should be")
        if not _NUMBER.fullmatch(word[0]) and word[0] not in _LITERALS:
            self._note_refused(self.at, "a name without quotes")
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
                raise JsonDialectError(start, "a text does not end")
            self.charge(1, end)
            escape = _ESCAPE.match(self.content, end)
            if escape is None or (escape["letter"] or b"n") not in _LETTERS:
                raise JsonDialectError(end, "an escape that is none")
            number = escape["unit"] or escape["byte"]
            parts.append(chr(int(number, 16)) if number else _LETTERS[escape["letter"]])
            match = _PLAIN[quote].match(self.content, escape.end())
            end = match.end() if match else escape.end()
            parts.append(self.content[escape.end() : end].decode("utf-8", "replace"))
        self.at = end + 1
        # Two escaped surrogates are one character; one alone is none.
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _text(self, content: bytes) -> str:
        """Decode; short texts, which are mostly names of fields, are kept once."""
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
            raise self._error(f"{self._found()} where a value should be")
        text = match[0]
        if len(text) > MAX_NUMBER_LENGTH:
            raise self._error(f"a number of {len(text)} characters")
        if _WORD.match(self.content, match.end()):
            raise self._error(f"{self._found()} where a value should be")
        value = int(text) if text.lstrip(b"+-").isdigit() else float(text)
        if isinstance(value, float) and abs(value) == float("inf"):
            raise self._error("a number that is too large")
        self.at = match.end()
        return value


class _References:
    """Puts what they name in the place of references, at a cost that is charged."""

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
            raise self._error(reference, "is no path from the root")
        waiting = [value]
        while waiting:
            inner = waiting.pop()
            self._parser.charge(1, reference.position)
            if isinstance(inner, _Reference):
                raise self._error(reference, "leads to another reference")
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
        raise self._error(reference, "names nothing")

    def _error(self, reference: _Reference, what: str) -> JsonDialectError:
        return JsonDialectError(reference.position, f"$ref {reference.path[:80]!r} {what}")
