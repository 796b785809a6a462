"""Tests of bodies: regular expressions, and values in JSON documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocketstore.errors import FilterSyntaxError

BodyTest = Callable[[bytes], bool]
_NAME = re.compile(r"[^.\[\]=\"'\s]+")
_INDEX = re.compile(r"\[(-?\d{1,9}|\*)\]")
_QUOTED = re.compile(r"\[(\"(?:[^\"\\]|\\.)*\"|'[^']*')\]")


def regex_test(expression: str) -> BodyTest:
    """Return a test whether a body contains a match of a regular expression (Python's syntax).

    The body is text in UTF-8; bytes that are not UTF-8 match ``.`` and no letter.

    Raises
    ------
    FilterSyntaxError
        With the column of the fault.
    """
    try:
        search = re.compile(expression).search
    except (re.error, RecursionError, OverflowError) as error:
        position = getattr(error, "pos", None) or 0
        reason = getattr(error, "msg", "") or str(error) or type(error).__name__
        raise FilterSyntaxError(expression, position + 1, reason) from None

    def test(body: bytes) -> bool:
        return search(body.decode("utf-8", "surrogateescape")) is not None

    return test


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """A place in a JSON document, and the value that it must have.

    Attributes
    ----------
    steps : tuple of str, int or None
        Names of members, numbers of elements (from the end if negative), ``None`` for all.
    wanted : object
    is_text : bool
        ``wanted`` was written without quotes, and a string of the same text is equal, too.
    text : str
    exists : bool
        Any value is enough.
    """

    steps: tuple[str | int | None, ...]
    wanted: Any
    is_text: bool
    text: str
    exists: bool

    def __call__(self, body: bytes) -> bool:
        """Return whether a body is JSON with the value; one that is no JSON has it not."""
        try:
            document = json.loads(body.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return False
        return any(self._equals(value) for value in _values(document, self.steps, 0))

    def _equals(self, value: Any) -> bool:
        if self.exists:
            return True
        if isinstance(value, str):
            return value == (self.text if self.is_text else self.wanted)
        if isinstance(value, bool) or isinstance(self.wanted, bool):
            return value is self.wanted
        return bool(value == self.wanted) and (value is None) == (self.wanted is None)


def json_test(expression: str) -> JsonCondition:
    """Return a test for ``path=value``, or for ``path`` alone: whether there is a value.

    ``order.items[0].sku=A-17``; a leading ``$.`` may be given; ``[-1]`` is the last element,
    ``[*]`` any element, ``["a.b"]`` a member whose name has a dot. The value is JSON (``17``,
    ``true``, ``null``, ``"17"``); other text is a string.

    Raises
    ------
    FilterSyntaxError
        With the column of the fault.
    """
    steps: list[str | int | None] = []
    at = 1 if expression.startswith("$") else 0
    while at < len(expression) and expression[at] != "=":
        if expression[at] == ".":
            if at == 0 or expression[at - 1] == ".":
                raise FilterSyntaxError(expression, at + 1, "a name is missing")
            at += 1
            if expression[at : at + 1] in ("", "=", "[", "."):
                raise FilterSyntaxError(expression, at + 1, "a name is missing")
        elif steps and expression[at] != "[" and expression[at - 1] != ".":
            raise FilterSyntaxError(expression, at + 1, "'.', '[' or '=' is missing")
        at = _step(expression, at, steps)
    if not steps and at == 0:
        raise FilterSyntaxError(expression, 1, "a path is missing: give path=value")
    if at == len(expression):
        return JsonCondition(tuple(steps), None, is_text=False, text="", exists=True)
    text = expression[at + 1 :]
    try:
        wanted = json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith(('"', "{", "[")):
            raise FilterSyntaxError(expression, at + 2, "the value is not JSON") from None
        wanted = text
    is_text = not text.lstrip().startswith('"')
    return JsonCondition(tuple(steps), wanted, is_text, text, exists=False)


def _step(expression: str, at: int, steps: list[str | int | None]) -> int:
    """Add the step at ``at``; return where the next begins."""
    quoted = _QUOTED.match(expression, at)
    if quoted is not None:
        text = quoted[1]
        try:
            steps.append(json.loads(text) if text[0] == '"' else text[1:-1])
        except ValueError:
            raise FilterSyntaxError(expression, at + 2, "the name is no JSON string") from None
        return quoted.end()
    index = _INDEX.match(expression, at)
    if index is not None:
        steps.append(None if index[1] == "*" else int(index[1]))
        return index.end()
    name = _NAME.match(expression, at)
    if name is None:
        reason = "[number], [*] or [\"name\"] is expected" if expression[at] == "[" else (
            f"{expression[at]!r} is not allowed in a name; quote it: [\"a b\"]"
        )  # fmt: skip
        raise FilterSyntaxError(expression, at + 1, reason)
    steps.append(name[0])
    return name.end()


def _values(value: Any, steps: tuple[str | int | None, ...], at: int) -> Any:
    """Yield the values at a path."""
    if at == len(steps):
        yield value
        return
    step = steps[at]
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _values(value[step], steps, at + 1)
    elif isinstance(value, list):
        if step is None:
            for element in value:
                yield from _values(element, steps, at + 1)
        elif -len(value) <= step < len(value):
            yield from _values(value[step], steps, at + 1)
