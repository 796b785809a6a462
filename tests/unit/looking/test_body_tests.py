"""Tests of bodies: regular expressions and JSON conditions."""

from __future__ import annotations

import json

import pytest

from rocketstore.errors import FilterSyntaxError
from rocketstore.looking.body_tests import json_test, regex_test

DOCUMENT = json.dumps(
    {
        "a": {"b": [1, 2.5, "17", None, True, {"c": "ü"}], "d.e": "x", "f": "17"},
        "empty": "",
        "list": [[1], [2, 3]],
    }
).encode()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a.b[0]=1", True), ("a.b[0]=1.0", True), ("a.b[0]=2", False), ("a.b[0]=true", False),
        ("a.b[2]=17", True), ('a.b[2]="17"', True), ("a.b[2]=\"1\"", False), ("a.f=17", True),
        ("a.b[3]=null", True), ("a.b[0]=null", False), ("a.b[4]=true", True), ("a.b[4]=1", False),
        ("a.b[5].c=ü", True), ("$.a.b[-1].c=ü", True), ("a.b[*].c=ü", True), ("a.b[*]=2.5", True),
        ('a["d.e"]=x', True), ("a['d.e']=x", True), ("a.d.e=x", False), ("empty=", True),
        ("list[*][*]=3", True), ("list[*][1]=3", True), ("list[9]=3", False), ("list=3", False),
        ("a.b", True), ("a.nothing", False), ("a.b[3]", True), ("list[1]=[2, 3]", True),
        ("$[0]=1", False),
    ],
)  # fmt: skip
def test_json_conditions(condition: str, expected: bool) -> None:
    assert json_test(condition)(DOCUMENT) is expected


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b"1" * 10_000, b'{"a": ' * 50_000]
)
def test_what_is_no_json_does_not_match(body: bytes) -> None:
    assert json_test("a.b=1")(body) is False


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert json_test("a=1")(b'\xef\xbb\xbf{"a": 1}')


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("", 1), ("=1", 1), (".a=1", 1), ("a..b=1", 3), ("a.=1", 3), ("a.", 3), ("a[x]=1", 2),
        ("a[1=1", 2), ("a[0]b=1", 5), ('a="x', 3), ("a={", 3), ("a b=1", 2), ("a.[0]=1", 3),
    ],
)  # fmt: skip
def test_invalid_conditions(condition: str, column: int) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        json_test(condition)
    assert caught.value.column == column
    assert caught.value.expression == condition


@pytest.mark.parametrize(
    ("expression", "body", "expected"),
    [
        ("a.c", b"xabcx", True), ("^abc$", b"abc", True), ("ü", "ü".encode(), True),
        ("x.y", b"x\xffy", True), ("x\\wy", b"x\xffy", False), ("(?i)ABC", b"abc", True),
        ("", b"", True), ("a", b"", False),
    ],
)  # fmt: skip
def test_regular_expressions(expression: str, body: bytes, expected: bool) -> None:
    assert regex_test(expression)(body) is expected


@pytest.mark.parametrize(
    ("expression", "column"), [("[", 1), ("ab(", 3), ("a{2}{3}", 5), ("*", 1), ("(?P<a", 1)]
)
def test_invalid_regular_expressions(expression: str, column: int) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        regex_test(expression)
    assert caught.value.column >= column
