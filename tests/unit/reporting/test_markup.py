"""Markup: text is text, and no attribute runs or loads anything."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore.reporting.markup import Cell, both_times, moment, table, tag, text, visible


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@given(st.text(max_size=300))
def test_any_text_is_one_text_node(value: str) -> None:
    parser = _Texts()
    parser.feed(tag("p", value, class_=value))
    parser.close()
    assert parser.tags == ["p"]
    shown = "".join(parser.found)
    assert shown == visible(value)
    assert len(shown) <= 200
    assert shown.isprintable()


def test_what_is_not_printable_is_written_out() -> None:
    assert visible("a\x00\t\u202e\U000e0041\ud800é") == "a\\x00\\x09\\u202e\\U000e0041\\ud800é"
    assert visible("x" * 300) == "x" * 199 + "…"
    assert text("<&'\">") == "&lt;&amp;&#x27;&quot;&gt;"


@pytest.mark.parametrize(
    "attribute",
    [
        {"onclick": "x"}, {"onload": "x"}, {"style": "x"}, {"src": "x"}, {"href": "https://x"},
        {"href": "javascript:x"}, {"srcset": "x"}, {"action": "x"},
    ],
)  # fmt: skip
def test_forbidden_attributes(attribute: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="may not have"):
        tag("a", **attribute)


def test_times() -> None:
    assert "2023-11-14 22:13:20Z" in moment(1_700_000_000_000)
    assert moment(None) == "–"
    for odd in (-1, 0, 2**62):
        assert moment(odd) == str(odd)
        assert both_times(odd) == str(odd)


def test_tables_have_a_name_and_keys_to_sort_by() -> None:
    made = table(["a", "b"], [[Cell("x", 2), "y"]], label="T", right=(1,), sortable=True)
    assert 'aria-label="T"' in made
    assert 'data-key="2"' in made
    assert "data-sortable" in made
    with pytest.raises(ValueError, match="zip"):
        table(["a", "b"], [["x"]], label="T")
