"""Tokens of an SQL92 expression, one at a time: text past the expression is never looked at."""

from __future__ import annotations

import re
from typing import NamedTuple

from rocketstore.errors import FilterSyntaxError

KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
#: Keywords since RocketMQ 5.1.3; names before.
TEXT_SEARCHES = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
#: Kinds of tokens besides keywords and signs, which are their own kind.
NAME, STRING, INTEGER, FLOAT, END = "name", "string", "integer", "float", "end"

_BLANK = re.compile(r"[ \t\n\r\f]*+")
#: The groups are in the order in which the longest token is found. A text without a closing quote
#: ends at its last doubled quote, if there is any. Two minus signs may begin a comment.
_TOKEN = re.compile(
    r"""[ \t\n\r\f]*+(?:
    (?P<name>[A-Za-z_$][A-Za-z0-9_$]*+)
    |(?P<float>[0-9]++(?:\.[0-9]*+(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)
        |\.[0-9]++(?:[eE][+-]?[0-9]++)?)
    |(?P<integer>0|[1-9][0-9]*+[lL]?)
    |(?P<string>'[^']*+(?:''[^']*+)*')
    |(?P<sign><>|>=|<=|[(),+=<>]|-(?!-))
    )""",
    re.VERBOSE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile(r"[\n\r]")


class Token(NamedTuple):
    """A token: its kind, its text, and where it begins (from 0)."""

    kind: str
    text: str
    at: int


class Lexer:
    """Reads tokens from left to right: the longest at each place.

    Parameters
    ----------
    expression : str
    text_search : bool
        Whether CONTAINS, STARTSWITH and ENDSWITH are keywords.

    Notes
    -----
    Source: RocketMQ ``filter/parser/SelectorParser.jj``, section Tokens.
    """

    def __init__(self, expression: str, *, text_search: bool) -> None:
        self._expression = expression
        self._keywords = KEYWORDS | TEXT_SEARCHES if text_search else KEYWORDS
        self._at = 0
        #: A line comment needs a line end; without one there are two minus signs.
        self._last_line_end = max(expression.rfind("\n"), expression.rfind("\r"))

    def next(self) -> Token:
        """Return the next token. Raises ``FilterSyntaxError`` if there is none."""
        match = _TOKEN.match(self._expression, self._at)
        if match is None:
            self._skip_comments()
            at = self._at
            if at == len(self._expression):
                return Token(END, "", at)
            if self._expression.startswith("--", at):
                self._at = at + 1
                return Token("-", "-", at)
            match = _TOKEN.match(self._expression, at)
            if match is None:
                raise FilterSyntaxError(self._expression, at + 1, self._fault(at))
        kind = match.lastgroup
        assert kind is not None
        text = match[kind]
        self._at = match.end()
        at = self._at - len(text)
        if kind == "sign":
            return Token(text, text, at)
        if kind == NAME:
            word = text.upper()
            return Token(word if word in self._keywords else NAME, text, at)
        if kind == STRING and (surrogate := _SURROGATE.search(text)):
            column = at + surrogate.start() + 1
            raise FilterSyntaxError(
                self._expression, column, "an unpaired surrogate is no character"
            )
        return Token(kind, text, at)

    def _fault(self, at: int) -> str:
        character = self._expression[at]
        if character == "'":
            return "this text has no closing quote"
        if self._expression.startswith("/*", at):
            return "this comment has no end"
        is_of_tags = self._expression.startswith("||", at) or self._expression.strip() == "*"
        hint = '; for tags as in "TagA || TagB" there is TagFilter' if is_of_tags else ""
        return f"unexpected character {character!a}{hint}"

    def _skip_comments(self) -> None:
        """Skip blanks and comments; a comment without its end is left."""
        expression = self._expression
        while True:
            blank = _BLANK.match(expression, self._at)
            assert blank is not None
            self._at = blank.end()
            if expression.startswith("--", self._at) and self._at < self._last_line_end:
                line_end = _LINE_END.search(expression, self._at)
                assert line_end is not None
                self._at = line_end.end()
            elif expression.startswith("/*", self._at):
                end_at = expression.find("*/", self._at + 2)
                if end_at < 0:
                    return
                self._at = end_at + 2
            else:
                return


def string_value(token: Token) -> str:
    """Return the text of a string token: without its quotes, doubled ones inside joined."""
    return token.text[1:-1].replace("''", "'")
