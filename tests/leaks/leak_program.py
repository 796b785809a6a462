"""Opens, fills, reads and closes stores again and again, then prints what is left over as JSON.

Usage: ``python leak_program.py ROOT ROUNDS``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import TagFilter, kernels

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 256 * 1024,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def resident_nbytes() -> int:
    """Memory of this process that is not backed by a file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise LookupError("RssAnon")


def mappings_below(root: Path) -> int:
    return sum(str(root) in line for line in Path("/proc/self/maps").read_text().splitlines())


def one_round(root: Path, number: int) -> None:
    """Everything a store does, once, with messages kept past its close."""
    with rocketstore.open(root, "a", **OPTIONS) as store:
        for index in range(300):
            store.put(
                "T", b"x" * 200, index % 4, "TagA", f"key-{index}", properties={"n": str(index)}
            )
        assert store.wait_dispatched(30)
        kept = list(store.get_message("g", "T", number % 4, 0, 32).messages)
        views = [message.raw for message in kept[:3]]
        assert list(store.find(topic="T", key="key-7"))
        assert store.query_message("T", "key-8").messages
        store.get_message("g", "T", 0, 0, filter=TagFilter("TagB"))
        assert store.flush() > 0
    assert bytes(views[0]) == bytes(kept[0].raw)
    with rocketstore.open(root) as store:
        store.refresh()
        assert sum(1 for _ in store.scan()) >= 300
        assert store.look_message_by_offset(0) is not None
        filtered(store, number)


def filtered(store: rocketstore.DefaultMessageStore, number: int) -> None:
    """Filters in every way to read: kept ones, new ones, left in the middle, and refused ones."""
    texts = " OR ".join(f"n = 'é{index}'" for index in range(400))
    for expression in ("n > 100", f"n > {number}", f"n = 'x{number}' AND ({texts})", "TAGS > 5"):
        for _ in range(3):
            store.get_message("g", "T", 0, 0, 32, filter=expression)
        assert len(list(store.scan(filter=expression))) < 300
        next(store.scan(filter=expression), None)
        list(store.tail(start=0, filter=expression, timeout_s=0))
        list(store.find(topic="T", key="key-7", filter=expression))
        made = rocketstore.Sql92Filter(expression)
        for _ in range(3):
            store.get_message("g", "T", 0, 0, 32, filter=made)
            store.scan_arrow("queueId", filter=made).read_all()
        with contextlib.suppress(rocketstore.FilterSyntaxError):
            store.get_message("g", "T", 0, 0, 32, filter=f"{expression} AND")


def state(root: Path) -> dict[str, int]:
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": mappings_below(root),
        "mapped_nbytes": kernels.mapping.mapped_nbytes(),
        "resident_nbytes": resident_nbytes(),
    }


def main() -> None:
    base, rounds = Path(sys.argv[1]), int(sys.argv[2])
    for number in range(3):  # imports, caches and allocator pools settle
        one_round(base / f"warm{number}", number)
    before = state(base)
    for number in range(rounds):
        one_round(base / f"round{number}", number)
    print(json.dumps({"before": before, "after": state(base)}))


if __name__ == "__main__":
    main()
