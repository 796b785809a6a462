"""A process that puts messages, preallocates segments and deletes old ones, until it is killed.

Usage: ``python expiring_writer.py ROOT``. Each line of output is one acknowledged message: physical
offset, queue id, queue offset and body, separated by tabs; the first line is ``open``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import rocketstore
from support import half_full_disk

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "delete_when": ";".join(map(str, range(24))),
    "delete_commit_log_files_interval": 0,
    "file_reserved_time": 1,
}
#: Segments that the log keeps, and how many go at once.
KEPT, GONE = 30, 3


def main() -> None:
    half_full_disk.pretend()
    root = Path(sys.argv[1])
    with rocketstore.open(root, "a", **OPTIONS) as store:
        os.write(1, b"open\n")
        number = 0
        while True:
            number += 1
            queue_id, body = number % 3, str(number).encode().ljust(100 + number % 500, b".")
            result = store.put("T", body, queue_id, "Tag", f"k{number}")
            assert result.ok, result
            row = (result.physical_offset, queue_id, result.queue_offset, number)
            os.write(1, "\t".join(map(str, row)).encode() + b"\n")
            if number % 200 == 0:
                _expire(store, root)


def _expire(store: rocketstore.DefaultMessageStore, root: Path) -> None:
    segments = sorted((root / "commitlog").iterdir())
    if len(segments) > KEPT:
        for path in segments[:GONE]:
            os.utime(path, (0, 0))
        store.clean_expired()


if __name__ == "__main__":
    main()
