"""Tokens of SQL92 expressions."""

from __future__ import annotations

import pytest

from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.sql92.lexer import END, Lexer, string_value


def tokens(expression: str, *, text_search: bool = True) -> list[tuple[str, str]]:
    lexer = Lexer(expression, text_search=text_search)
    found = []
    while (token := lexer.next()).kind != END:
        assert expression.startswith(token.text, token.at)
        found.append((token.kind, token.text))
    return found


TAGS = 'for tags as in "TagA || TagB" there is TagFilter'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", []),
        (" \t\n\r\f", []),
        ("and AND aNd", [("AND", "and"), ("AND", "AND"), ("AND", "aNd")]),
        ("android $x _1", [("name", "android"), ("name", "$x"), ("name", "_1")]),
        ("007", [("integer", "0"), ("integer", "0"), ("integer", "7")]),
        ("0L 12l 3L", [("integer", "0"), ("name", "L"), ("integer", "12l"), ("integer", "3L")]),
        ("00.5 5. .5e+1 1E2", [("float", t) for t in ("00.5", "5.", ".5e+1", "1E2")]),
        ("1.5.5", [("float", "1.5"), ("float", ".5")]),
        (
            "12e 1e+",
            [("integer", "12"), ("name", "e"), ("integer", "1"), ("name", "e"), ("+", "+")],
        ),
        ("<=<>>==", [("<=", "<="), ("<>", "<>"), (">=", ">="), ("=", "=")]),
        ("''", [("string", "''")]),
        ("'a''b\n'x", [("string", "'a''b\n'"), ("name", "x")]),
        ("'a''b' ''''", [("string", "'a''b'"), ("string", "''''")]),
        ("'a' ''b", [("string", "'a'"), ("string", "''"), ("name", "b")]),
        ("a--c\nb", [("name", "a"), ("name", "b")]),
        ("a--c\rb", [("name", "a"), ("name", "b")]),
        ("a--c", [("name", "a"), ("-", "-"), ("-", "-"), ("name", "c")]),
        ("--\n--", [("-", "-"), ("-", "-")]),
        ("/*/ * **/a/***/", [("name", "a")]),
    ],
)
def test_tokens(expression: str, expected: list[tuple[str, str]]) -> None:
    assert tokens(expression) == expected


def test_text_searches_are_names_in_old_versions() -> None:
    assert tokens("contains") == [("CONTAINS", "contains")]
    assert tokens("contains", text_search=False) == [("name", "contains")]


def test_doubled_quotes_are_joined() -> None:
    assert string_value(Lexer("'it''s '''", text_search=True).next()) == "it's '"


@pytest.mark.parametrize(
    ("expression", "column", "reason"),
    [
        ("a #", 3, "unexpected character '#'"),
        ("a \x0b", 3, r"unexpected character '\x0b'"),
        ("a \u00a0", 3, r"unexpected character '\xa0'"),
        ("a \x00", 3, r"unexpected character '\x00'"),
        ("a /", 3, "unexpected character '/'"),
        ("TagA || TagB", 6, f"unexpected character '|'; {TAGS}"),
        (" * ", 2, f"unexpected character '*'; {TAGS}"),
        ("a /* b", 3, "this comment has no end"),
        ("a /*/", 3, "this comment has no end"),
        ("a 'b", 3, "this text has no closing quote"),
        ("a 'b''", 6, "this text has no closing quote"),
        ("a 'b\ud800'", 5, "an unpaired surrogate is no character"),
        ("\u212aey", 1, "unexpected character"),
    ],
)
def test_what_is_no_token(expression: str, column: int, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        tokens(expression)
    assert caught.value.column == column
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize("expression", ["a | b", "a = *", "a * b ^"])
def test_other_signs_are_not_called_tags(expression: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        tokens(expression)
    assert TAGS not in caught.value.reason


def test_many_minus_signs_take_linear_time() -> None:
    """Each might begin a comment, whose end would be looked for over and over."""
    assert len(tokens("-" * 200_000)) == 200_000
    assert len(tokens("/" + "*" * 500_000 + "/")) == 0
