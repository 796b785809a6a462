"""The syntax of a broker's file: Java's own answers, and texts that are written and read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore.broker_file.java_properties import escape_value, parse
from rocketstore.errors import ConfigError

#: What ``java.util.Properties.load`` of Java 17 puts, in order; ``None``: it refuses the file.
JAVAS_ANSWERS: list[tuple[bytes, list[tuple[str, str]] | None]] = [
    (b"a=b", [("a", "b")]),
    (b"a = b ", [("a", "b ")]),
    (b" a\t:\tb", [("a", "b")]),
    (b"a b c", [("a", "b c")]),
    (b"a==b", [("a", "=b")]),
    (b"a :=b", [("a", "=b")]),
    (b"a\\ b=c", [("a b", "c")]),
    (b"a\\=b\\:=c", [("a=b:", "c")]),
    (b"=v", [("", "v")]),
    (b":", [("", "")]),
    (b"a", [("a", "")]),
    (b"#x=1\n!y=2\nz=3", [("z", "3")]),
    (b" # a=1\\\nb=2", [("b", "2")]),
    (b"a=1\rb=2\r\nc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
    (b"a=1\\\n  2", [("a", "12")]),
    (b"a=1\\\\\n  2", [("a", "1\\"), ("2", "")]),
    (b"a=1\\\\\\\n2", [("a", "1\\2")]),
    (b"a=1\\\n\nb=2", [("a", "1"), ("b", "2")]),
    (b"a=1\\\n#b=2", [("a", "1#b=2")]),
    (b"\\\n#a=1\nb=2", [("b", "2")]),
    (b"a=\\\n\\\n\\\nb", [("a", "b")]),
    (b"a=b\\", [("a", "b")]),
    (b'a=\\t\\n\\r\\f\\q\\"', [("a", '\t\n\r\x0cq"')]),
    (b"a=\\u0041\\u00e9", [("a", "Aé")]),
    (b"a=\\ud83d\\ude00", [("a", "😀")]),
    (b"a=\xe9\xa0", [("a", "é\xa0")]),
    (b"a\x0bb=c", [("a\x0bb", "c")]),
    (b"a=b\x0c\n\x0cc=d", [("a", "b\x0c"), ("c", "d")]),
    (b"a\x85b", [("a\x85b", "")]),
    (b"a=b#c!d", [("a", "b#c!d")]),
    (b"\\u0061=1", [("a", "1")]),
    (b"a\\\n  b=1", [("ab", "1")]),
    (b"a=1\na=2", [("a", "1"), ("a", "2")]),
    (b"a=\\u00g1", None),
    (b"a=\\u12", None),
    (b"#\\u12\na=1", [("a", "1")]),
    (b"a\\\n\n", [("a", "")]),
    (b"a=\\u005cn", [("a", "\\n")]),
]


def pairs(content: bytes) -> list[tuple[str, str]]:
    return [(one.key, one.value) for one in parse(content.decode("iso-8859-1"))]


@pytest.mark.parametrize(("content", "answer"), JAVAS_ANSWERS, ids=repr)
def test_java_reads_the_same(content: bytes, answer: list[tuple[str, str]] | None) -> None:
    if answer is None:
        with pytest.raises(ConfigError, match="hexadecimal"):
            pairs(content)
    else:
        assert pairs(content) == answer


def test_entries_know_their_lines() -> None:
    text = "# one\n\na=1\r\nb=2\\\n  3\\\n 4\rc=5\n"
    assert [(one.key, one.line) for one in parse(text)] == [("a", 3), ("b", 4), ("c", 7)]


def test_a_bad_escape_names_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        list(parse("a=1\nb=2\\\n\\u00\n"))
    assert caught.value.line == 2


@given(st.text(st.characters(codec="utf-8")))
def test_what_is_written_is_read(value: str) -> None:
    (found,) = parse(f"key={escape_value(value)}")
    assert escape_value(value).isascii()
    # Blanks before a value belong to its separator.
    assert found.value == value.lstrip(" ")


def test_long_lines_take_linear_time() -> None:
    (found,) = parse("k=" + "\\\n" * 200_000 + "v" + "\\\\" * 200_000)
    assert len(found.value) == 200_001
