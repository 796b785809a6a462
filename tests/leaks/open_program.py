"""Opens and closes a store of many segments again and again, then prints what is left over as JSON.

Usage: ``python open_program.py ROOT ROUNDS``. The store is made at ROOT when it is not there. Each
half of the rounds should be a multiple of 100, so that both do the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rocketstore
from leaks.leak_program import state

SEGMENTS = 100
SEGMENT_NBYTES = 4096
#: One in so many is opened for writing; its syncs take most of the time.
WRITING_EVERY = 50


def make(root: Path) -> None:
    """A store whose segments hold a message each."""
    with rocketstore.open(
        root,
        "x",
        start=False,
        mapped_file_size_commit_log=SEGMENT_NBYTES,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=400,
    ) as store:
        for number in range(SEGMENTS):
            assert store.put("T", bytes(SEGMENT_NBYTES // 2), number % 4, "Tag", f"k{number}").ok
        assert store.wait_dispatched()


def open_once(root: Path, number: int) -> None:
    """Open, read from both ends, and close."""
    mode = "r+" if number % WRITING_EVERY == 0 else "r"
    with rocketstore.open(root, mode, start=number % (2 * WRITING_EVERY) == 0) as store:
        assert store.look_message_by_offset(0) is not None
        assert store.get_message("g", "T", number % 4, 20).messages[0].queue_offset == 20
        assert next(iter(store.find(topic="T", key="k99"))).physical_offset > 0


def main() -> None:
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    if not root.exists():
        make(root)
    assert len(list((root / "commitlog").iterdir())) >= SEGMENTS
    for number in range(2 * WRITING_EVERY):  # imports, caches and allocator pools settle
        open_once(root, number)
    before = state(root)
    for number in range(rounds // 2):
        open_once(root, number)
    between = state(root)
    for number in range(rounds // 2):
        open_once(root, number)
    print(json.dumps({"before": before, "between": between, "after": state(root)}))


if __name__ == "__main__":
    main()
