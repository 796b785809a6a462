"""A process that begins and decides transactions until it is killed.

Usage: ``python transaction_writer.py ROOT FLUSH_DISK_TYPE SEED``. Standard output: ``open``, then a
line ``KEY WHAT`` for every begin, commit and rollback that returned. What former processes left
undecided is decided at the start, as their keys say.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from typing import Any

import rocketstore
from rocketstore import TransactionState

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "flush_interval_consume_queue": 20,
    "flush_consume_queue_thorough_interval": 60,
    "transaction_check_max": 1000,
}
THREADS = 3


def wanted(key: str) -> str:
    """What is decided about a transaction, always the same."""
    return "commit" if int(key.rpartition("-")[2]) % 3 else "rollback"


def report(key: str, what: str) -> None:
    os.write(1, f"{key} {what}\n".encode())


def decide(one: Any, key: str) -> None:
    if wanted(key) == "commit":
        assert one.commit().appended
    else:
        one.rollback()
    report(key, wanted(key))


def work(store: rocketstore.DefaultMessageStore, name: str) -> None:
    chance = random.Random(name)
    left: list[tuple[Any, str]] = []
    for number in range(1 << 30):
        key = f"{name}-{number}"
        body = f"{key} ".encode() + bytes(chance.choice((0, 10, 200, 3000)))
        left.append((store.begin("Orders", body, group="g", unique_key=key), key))
        report(key, "begin")
        while left and chance.random() < 0.6:
            decide(*left.pop(chance.randrange(len(left))))


def check(store: rocketstore.DefaultMessageStore) -> None:
    """Ask about all, decide some: those that a thread decides at the same time too."""

    def answer(message: Any) -> TransactionState | None:
        if len(message.unique_key) % 2:
            return None
        commits = wanted(message.unique_key) == "commit"
        return TransactionState.COMMIT if commits else TransactionState.ROLLBACK

    while True:
        store.transaction_check(answer, force=True, max_count=5)


def main() -> None:
    root, flush_disk_type, seed = sys.argv[1:]
    store = rocketstore.open(root, "a", flush_disk_type=flush_disk_type, **OPTIONS)
    os.write(1, b"open\n")
    for one in list(store.transactions()):
        decide(one, one.transaction_id)
    threads = [
        threading.Thread(target=work, args=(store, f"{seed}-{number}")) for number in range(THREADS)
    ]
    threads.append(threading.Thread(target=check, args=(store,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
