"""Zeroed units of expired messages: a broker truncates a queue at the first of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores

UNIT = 20
FILLER = (0).to_bytes(8, "big") + (2**31 - 1).to_bytes(4, "big") + bytes(8)


@pytest.mark.parametrize("with_state", [True, False], ids=["state", "broker"])
@pytest.mark.parametrize(
    ("topic", "queue_id", "zeroed"),
    [("T", 0, [48]), ("T", 0, [49, 50]), ("TopicA", 0, [17]), ("TopicA", 3, [0, 5, 6]),
     ("TopicB", 1, [16, 21]), ("%RETRY%grp", 0, [50, 52])],
)  # fmt: skip
def test_they_are_filled_as_a_broker_fills(
    topic: str, queue_id: int, zeroed: list[int], with_state: bool, tmp_path: Path
) -> None:
    """They stayed unchanged, so RocketMQ hid all intact messages after them. If all messages of a
    queue had expired, its end went back to them and offsets were assigned again."""
    root = golden_stores.unpack("expire-4.9.8", tmp_path)
    if with_state:
        rocketstore.open(root, "r+").close()
    with rocketstore.open(root) as store:
        start = store.min_offset_in_queue(topic, queue_id)
        end = store.max_offset_in_queue(topic, queue_id)
    (path,) = (root / "consumequeue" / topic / str(queue_id)).iterdir()
    first = int(path.name) // UNIT
    with path.open("r+b") as file:
        for index in zeroed:
            file.seek((index - first) * UNIT)
            file.write(bytes(UNIT))
    before = path.read_bytes()
    assert rocketstore.recover(root).left == {}
    after = path.read_bytes()
    for index in range(first, end):
        at = (index - first) * UNIT
        filled = index <= zeroed[-1]
        assert after[at : at + UNIT] == (FILLER if filled else before[at : at + UNIT])
    with rocketstore.open(root) as store:
        assert store.max_offset_in_queue(topic, queue_id) == end
        assert start <= store.min_offset_in_queue(topic, queue_id) <= end
        assert store.verify().ok
