"""Rows of CSV are read back, whatever is in their values."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore.display.csv_lines import CsvLines, csv_cell

ROWS = st.lists(
    st.lists(st.text(st.sampled_from('a,"\r\n\t;\\ é')), min_size=2, max_size=4), min_size=1
)


@given(ROWS)
def test_what_is_written_is_read(rows: list[list[str]]) -> None:
    text = io.StringIO()
    lines = CsvLines(text.write)
    for row in rows:
        lines.row(row)
    assert list(csv.reader(io.StringIO(text.getvalue(), newline=""), strict=True)) == rows


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("a\rb", '"a\rb"\n'),
        ("a\r", '"a\r"\n'),
        ("plain", "plain\n"),
        (7, "7\n"),
        ("a\nb", '"a\nb"\n'),
    ],
)
def test_lines_end_with_a_line_feed(value: object, line: str) -> None:
    text: list[str] = []
    CsvLines(text.append).row([value])
    assert text == [line]


def test_maps_and_lists_are_json() -> None:
    assert csv_cell({"a": [1, "é"]}) == '{"a":[1,"é"]}'
    assert csv_cell("text") == "text"
