"""A process that puts messages and deletes old ones until it is killed.

Usage: ``python cleaning_writer.py ROOT SEED``. Each line of output is one acknowledged message:
``physical offset, queue id, queue offset, number``, separated by tabs; the first is ``open``.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import rocketstore
from rocketstore.cleaning import clean_service as clean
from support import half_full_disk

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "flush_interval_commit_log": 5,
    "flush_interval_consume_queue": 20,
    "flush_consume_queue_thorough_interval": 60,
    "clean_resource_enable": True,
    "clean_resource_interval": 5,
    "delete_commit_log_files_interval": 1,
    "delete_consume_queue_files_interval": 1,
    "delete_when": ";".join(map(str, range(24))),
    "file_reserved_time": 0,
}


def main() -> None:
    half_full_disk.pretend()
    clean.FIRST_LOOK_S = 0.0
    root, chance = sys.argv[1], random.Random(sys.argv[2])
    with rocketstore.open(root, "a", **OPTIONS) as store:
        os.write(1, b"open\n")
        number = int(sys.argv[2]) * 1_000_000
        while True:
            number += 1
            queue_id = chance.randrange(3)
            body = str(number).encode().ljust(chance.choice((10, 100, 700)))
            result = store.put("T", body, queue_id, "Tag", f"k{number}")
            assert result.ok, result
            row = (result.physical_offset, queue_id, result.queue_offset, number)
            os.write(1, "\t".join(map(str, row)).encode() + b"\n")


if __name__ == "__main__":
    main()
