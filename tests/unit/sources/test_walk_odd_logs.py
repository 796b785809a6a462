"""Logs with ghosts, wrong whole-record CRCs, made-up headers, and a writer at work, read by
splits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.sources import list_log, plan_splits
from rocketstore.sources import window as window_module
from rocketstore.sources.walk import log_end
from rocketstore.status import RecordStatus
from support.record_factory import make_record
from support.split_walks import Reading, read_log, split_at

SEGMENT = 8192


def log_of(root: Path, pieces: list[bytes], segment: int = SEGMENT) -> Path:
    """A store whose log is one segment of these bytes, and one with a record after it."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    content = b"".join(pieces)
    blank = segment - len(content)
    content += formats.BLANK.struct.pack(blank, formats.BLANK_MAGIC) + bytes(blank - 8)
    (folder / formats.offset_to_file_name(0)).write_bytes(content)
    last = make_record(physical_offset=segment).ljust(segment, b"\0")
    (folder / formats.offset_to_file_name(segment)).write_bytes(last)
    return root


def records(*kinds: str) -> tuple[list[bytes], dict[str, list[int]]]:
    """Pieces of a log one after the other, and the offsets of each kind."""
    pieces: list[bytes] = []
    places: dict[str, list[int]] = {"good": [], "ghost": [], "crc": [], "junk": []}
    at = 0
    for number, kind in enumerate(kinds):
        options: dict[str, Any] = {"body": b"b" * (number * 13)}
        if kind == "ghost":
            piece = make_record(physical_offset=max(0, at - 1), **options)
        elif kind == "junk":
            piece = b"\xab" * 77
        else:
            piece = make_record(physical_offset=at, property_crc=True, **options)
        if kind == "crc":
            piece = piece[:-3] + bytes([piece[-3] ^ 1]) + piece[-2:]
        places[kind].append(at)
        pieces.append(piece)
        at += len(piece)
    return pieces, places


@pytest.mark.parametrize(
    "kinds",
    [
        "good ghost good good",
        "good ghost junk good",
        "good ghost ghost junk good junk good",
        "good junk ghost good",
        "good crc good",
        "good crc crc good ghost crc good junk",
        "junk good",
        "crc good",
    ],
)
def test_odd_places_are_reported_once_wherever_the_log_is_split(kinds: str, tmp_path: Path) -> None:
    pieces, places = records(*kinds.split())
    log = list_log(log_of(tmp_path / "store", pieces))
    good = [*places["good"], SEGMENT]
    whole = read_log(log, on_corruption="skip")
    damage = [first for first, _, _ in whole.damage]
    bad = sorted(places["junk"] + places["crc"])
    assert whole.offsets == good
    assert set(damage) <= set(bad)
    assert bool(damage) == bool(bad)
    splits = plan_splits(log)
    size = sum(map(len, pieces))
    edges = {place + shift for kind in places.values() for place in kind for shift in range(-3, 9)}
    for at in sorted({*edges, *range(5, size + 12, 7)}):
        reading = Reading(split_at(splits, [at]), on_corruption="skip")
        assert (reading.offsets, reading.damage) == (whole.offsets, whole.damage), at
    reading = Reading(split_at(splits, range(1, size, 5)), on_corruption="skip")
    assert (reading.offsets, reading.damage) == (whole.offsets, whole.damage)


def test_the_status_at_damage_is_reported(tmp_path: Path) -> None:
    pieces, places = records("good", "crc", "good")
    (reported,) = read_log(
        list_log(log_of(tmp_path / "store", pieces)), on_corruption="skip"
    ).damage
    crc, following = places["crc"][0], places["good"][1]
    assert reported == (crc, following, RecordStatus.BAD_PROPERTY_CRC)


@pytest.mark.parametrize("claim", [500, 20_000, 150_000])
@pytest.mark.parametrize("check_crc", [True, False])
def test_made_up_headers_cost_no_more_than_their_bytes(
    claim: int, check_crc: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = 1 << 19
    good = make_record(physical_offset=0)
    content = bytearray(good + b"\xff" * 50)
    head = formats.RECORD_HEAD
    while len(content) < segment - 10_000:
        values = dict.fromkeys((field.name for field in head.fields), 0)
        size = min(claim, segment - len(content))
        values.update(total_size=size, magic=formats.MAGIC_V1, physical_offset=len(content))
        content += head.struct.pack(*values.values())
    next_good = len(content)
    content += make_record(physical_offset=next_good)
    log = list_log(log_of(tmp_path / "store", [bytes(content)], segment))
    count = 0
    load = window_module.SplitWindow.load

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        load(self, *arguments, **options)

    monkeypatch.setattr(window_module.SplitWindow, "load", counted)
    monkeypatch.setattr(window_module, "WINDOW_NBYTES", 50_000)
    for split_bytes in (segment, segment // 4):
        reading = read_log(log, split_bytes=split_bytes, on_corruption="skip", check_crc=check_crc)
        assert reading.offsets == [0, next_good, segment]
        assert [(first, after) for first, after, _ in reading.damage] == [(len(good), next_good)]
    assert count < 400


def test_beside_a_writer_each_record_is_read_once_and_whole(tmp_path: Path) -> None:
    root = tmp_path / "store"
    total = 2000
    expected: list[int] = []
    started = threading.Event()

    def write() -> None:
        with rocketstore.open(root, "x", mapped_file_size_commit_log=65536) as store:
            for number in range(total):
                result = store.put("T", bytes([number % 256]) * (number % 700), number % 4)
                expected.append(result.physical_offset or 0)
                started.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert started.wait(120)
    seen: list[int] = []
    end = 0
    for _ in range(100_000):
        running = writer.is_alive()
        log = list_log(root)
        following = log_end(log, start=end)
        reading = read_log(log, start=end, stop=following, split_bytes=9000, aligned_start=True)
        seen += reading.offsets
        assert reading.damage == []
        assert read_log(log, start=end, aligned_start=True).damage == []
        end = following
        if not running:
            break
    writer.join(120)
    assert seen == expected
    assert len(seen) == total
