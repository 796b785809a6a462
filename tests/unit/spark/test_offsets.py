"""What a stream over a log keeps in its checkpoint, and which bytes a batch reads."""

from __future__ import annotations

import json

import pytest

from rocketstore.errors import DecodeError
from rocketstore.spark.stream.offsets import (
    NEVER,
    Latest,
    Range,
    StreamOffset,
    batch_ranges,
    starting_queues,
)

QUEUES = {"B": {1: 7, 0: 3}, "A": {10: 1, 2: 4}}
LATEST = Latest(500, {"C": [1, 0]})


@pytest.mark.parametrize(
    "offset",
    [
        StreamOffset(0),
        StreamOffset(2**62),
        StreamOffset(100, initial=True),
        StreamOffset(100, QUEUES, LATEST, initial=True),
        StreamOffset(200, QUEUES, LATEST, StreamOffset(100, QUEUES, LATEST)),
    ],
)
def test_offsets_survive_the_checkpoint(offset: StreamOffset) -> None:
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text))
    assert json.dumps(again.to_json()) == text
    assert again.physical_offset == offset.physical_offset
    assert again.initial == offset.initial
    assert {t: dict(q) for t, q in again.queues.items()} == offset.queues


def test_a_plain_offset_is_one_number() -> None:
    assert StreamOffset(42).to_json() == {"v": 1, "phy": 42}


def test_the_order_of_the_options_does_not_show() -> None:
    one = StreamOffset(5, {"A": {0: 1, 1: 2}, "B": {0: 3}}, Latest(9, {"C": [1, 0]}))
    two = StreamOffset(5, {"B": {0: 3}, "A": {1: 2, 0: 1}}, Latest(9, {"C": [0, 1]}))
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())


@pytest.mark.parametrize(
    "found",
    [
        None,
        5,
        {},
        {"phy": 5},
        {"v": 2, "phy": 5},
        {"v": 1},
        {"v": 1, "phy": -1},
        {"v": 1, "phy": "x"},
        {"v": 1, "phy": True},
        {"v": 1, "phy": 2**63},
        {"v": 1, "phy": 5, "more": 1},
        {"v": 1, "phy": 5, "queues": []},
        {"v": 1, "phy": 5, "queues": {"T": 3}},
        {"v": 1, "phy": 5, "queues": {"T": {"x": 3}}},
        {"v": 1, "phy": 5, "latest": {"phy": 3}},
        {"v": 1, "phy": 5, "latest": {"phy": 3, "queues": {"T": 3}}},
        {"v": 1, "phy": 5, "latest": 3},
        {"v": 1, "phy": 5, "first": {"phy": 3}},
    ],
)
def test_what_is_no_offset_is_refused(found: object) -> None:
    with pytest.raises(DecodeError, match="offset"):
        StreamOffset.from_json(found)


def test_the_first_end_shows_where_the_query_began() -> None:
    began = StreamOffset(100, QUEUES, LATEST, initial=True)
    end = began.advanced(700)
    assert end.first == StreamOffset(100, QUEUES, LATEST)
    assert end.latest is None  # past its place it says nothing
    # The next one carries the queues, and is plain otherwise.
    later = end.advanced(900)
    assert later == StreamOffset(900, QUEUES)


def test_a_repeated_first_batch_begins_where_it_began() -> None:
    end = StreamOffset(100, initial=True).advanced(300)
    moved = StreamOffset(1000, initial=True)  # "latest" by now
    assert list(batch_ranges(moved, end)) == [Range(100, 300, {})]
    # Any other batch begins at its start.
    assert list(batch_ranges(end, end.advanced(400))) == [Range(300, 400, {})]


def test_an_empty_batch_reads_nothing() -> None:
    start = StreamOffset(100, QUEUES, initial=True)
    assert list(batch_ranges(start, start.advanced(100))) == []
    assert list(batch_ranges(StreamOffset(300), StreamOffset(300))) == []


def test_latest_queues_are_silent_up_to_their_place() -> None:
    numbers, latest = starting_queues({"A": {0: 5, 1: -1}, "B": {0: -2, 1: 0}, "C": {2: -1}}, 500)
    assert numbers == {"A": {0: 5}, "B": {1: 0}}
    assert latest == Latest(500, {"A": [1], "C": [2]})
    start = StreamOffset(100, numbers, latest, initial=True)
    known = {("A", 0): 5, ("B", 1): 0}
    silent = {("A", 1): NEVER, ("C", 2): NEVER}
    assert list(batch_ranges(start, start.advanced(800))) == [
        Range(100, 500, {**known, **silent}),
        Range(500, 800, known),
    ]
    # A batch that ends before the place keeps it for the next one.
    middle = start.advanced(300)
    assert list(batch_ranges(start, middle)) == [Range(100, 300, {**known, **silent})]
    end = middle.advanced(500)
    assert list(batch_ranges(middle, end)) == [Range(300, 500, {**known, **silent})]
    assert list(batch_ranges(end, end.advanced(600))) == [Range(500, 600, known)]


def test_offsets_without_latest_queues() -> None:
    assert starting_queues({"A": {0: -2}}, 500) == ({}, None)
