"""Pulls of queues whose log has damage that recovery found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore import CorruptMessageError, GetMessageStatus, TagFilter
from rocketstore.status import RecordStatus

#: Tags of the messages by queue offset.
TAGS = "AABBAACC"
Pull = Callable[..., tuple[GetMessageStatus, int, list[int]]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "store"
    with rocketstore.open(path, "x", mapped_file_size_commit_log=65536) as store:
        for tag in TAGS:
            store.put("T", b"body", 0, tag)
        store.wait_dispatched()
    return path


@pytest.fixture
def pull(root: Path) -> Pull:
    """Pull from queue offset 0 with a filter while the named messages are known to be damaged."""

    def ask(damaged: list[int], wanted: object) -> tuple[GetMessageStatus, int, list[int]]:
        with rocketstore.open(root, "r") as store:
            places = [message.physical_offset for message in store.scan()]
            store.reader.log.damage.update(
                {places[number]: RecordStatus.BAD_BODY_CRC for number in damaged}
            )
            result = store.get_message("g", "T", 0, 0, 32, filter=wanted)
            offsets = [message.queue_offset for message in result.messages]
            return result.status, result.next_begin_offset, offsets

    return ask


FOUND, NONE = GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE


@pytest.mark.parametrize(
    ("damaged", "wanted", "answer"),
    [
        ([2, 3], TagFilter("A"), (FOUND, 8, [0, 1, 4, 5])),
        ([0, 1], TagFilter("B"), (FOUND, 8, [2, 3])),
        ([6, 7], TagFilter("A || B"), (FOUND, 8, [0, 1, 2, 3, 4, 5])),
        ([0, 7], TagFilter("D"), (NONE, 8, [])),
        ([2, 4], TagFilter("A"), (FOUND, 4, [0, 1])),
        ([3], None, (FOUND, 3, [0, 1, 2])),
        ([3], TagFilter("*"), (FOUND, 3, [0, 1, 2])),
        ([3], "TAGS = 'A'", (FOUND, 3, [0, 1])),
    ],
    ids=str,
)
def test_known_damage_of_other_tags_is_passed(
    pull: Pull, damaged: list[int], wanted: object, answer: object
) -> None:
    assert pull(damaged, wanted) == answer


@pytest.mark.parametrize("wanted", [None, TagFilter("A"), TagFilter("A || C"), "TAGS = 'B'"])
def test_known_damage_that_may_match_is_an_error(pull: Pull, wanted: object) -> None:
    with pytest.raises(CorruptMessageError, match="CRC"):
        pull([0], wanted)
