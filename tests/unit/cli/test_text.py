"""Times, sizes and text as the command line reads and writes them."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from rocketstore.cli.common.quantities import (
    counted,
    format_size,
    format_time,
    parse_size,
    parse_time,
)
from rocketstore.cli.common.text import command_line, escape, hex_dump, preview, to_json

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
        ("-2h", NOW - 7_200_000),
        ("-90s", NOW - 90_000),
        ("-1w", NOW - 7 * 86_400_000),
        ("-5ms", NOW - 5),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20.250+01:00", NOW + 250),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, clock=lambda: NOW) == expected


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime.datetime(2026, 1, 31, 12, 0)
    assert parse_time("2026-01-31T12:00") == local.timestamp() * 1000


@pytest.mark.parametrize("text", ["", "yesterday", "2h", "-2y", "-h", "2026-13-01", "1e9", "²"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_time(text)


@given(st.integers(1, 253_402_300_799_999))
def test_a_written_time_reads_back(timestamp: int) -> None:
    assert parse_time(format_time(timestamp)) == timestamp


@pytest.mark.parametrize("timestamp", [0, -5, 2**62])
def test_what_is_no_time_of_ours_stays_a_number(timestamp: int) -> None:
    assert format_time(timestamp) == str(timestamp)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64MiB", 64 << 20), ("1k", 1024), ("1KB", 1000), ("2 GiB", 2 << 30), ("320", 320), ("7B", 7)],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "64XB", "MiB", "1.5GiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a size"):
        parse_size(text)


def test_sizes_and_counts_are_readable() -> None:
    assert [format_size(n) for n in (0, 1023, 1024, 64 << 20, 5 << 40)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "64.0 MiB", "5.0 TiB",
    ]  # fmt: skip
    assert (counted(1, "key"), counted(2000, "key")) == ("1 key", "2,000 keys")
    assert counted(2, "index entry", "index entries") == "2 index entries"


@given(st.text())
def test_escaped_text_holds_nothing_a_terminal_acts_on(text: str) -> None:
    escaped = escape(text)
    assert not [
        c for c in escaped if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000
    ]
    assert escape(escaped) == escaped


@given(st.text())
def test_json_is_safe_and_says_the_same(text: str) -> None:
    written = to_json({"text": text})
    assert json.loads(written) == {"text": text}
    assert escape(written) == written
    assert json.loads(to_json([text, {"a": text}], indent=2)) == [text, {"a": text}]


@given(st.text(), st.integers(2, 40))
def test_previews_are_short(text: str, width: int) -> None:
    assert len(preview(text, width)) <= width


def test_hex_dump() -> None:
    assert hex_dump(b"\x00\x1bABC") == ["00000000  00 1b 41 42 43" + " " * 33 + "  ..ABC"]
    assert len(hex_dump(bytes(1000), 256)) == 16


@pytest.mark.parametrize(
    "name",
    ["a", "a b", "$(id)", "-x", "new\nline", "it's", "caf\udce9", "\x1b[31m", "\u202e", "a\\b"],
)
def test_a_command_can_be_pasted(name: str) -> None:
    line = command_line("doctor", Path(name), "--quick")
    assert escape(line) == line
    printing = f'rocketstore() {{ printf "%s\\0" "$@"; }}; {line}'
    words = subprocess.run(["bash", "-c", printing], capture_output=True, check=True).stdout
    path = f"./{name}" if name.startswith("-") else name
    assert words.split(b"\0") == [b"doctor", os.fsencode(path), b"--quick", b""]
