"""The bound on mapped queue files, and what stays usable of those that were let go."""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path

import pytest

from rocketstore.files import mapping_cache
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.files.mapping_cache import MappingCache
from support.own_process import run_python

PROGRAM = Path(__file__).parents[2] / "support" / "many_queues_program.py"
SIZE = 4096


class Row:
    """A queue of files that a cache bounds; the n-th is filled with the byte n."""

    def __init__(self, root: Path, count: int, limit: int) -> None:
        self.cache = MappingCache(limit)
        self.queue = MappedFileQueue(root / "q", SIZE, root, writable=True, cache=self.cache)
        for number in range(count):
            file = self.queue.create_file(number * SIZE, allocated=SIZE)
            memoryview(file.mapping)[:] = bytes([number]) * SIZE
        self.forget_uses()

    def forget_uses(self) -> None:
        for file in self.queue.files:
            file.was_used = False

    @property
    def mapped(self) -> list[int]:
        return [n for n, file in enumerate(self.queue.files) if file.mapped is not None]


def test_no_more_are_mapped_than_the_limit(tmp_path: Path) -> None:
    row = Row(tmp_path, 10, 3)
    assert row.mapped == [7, 8, 9]
    for number in range(10):
        assert row.queue.files[number].view[17] == number
        assert len(row.mapped) == len(row.cache) == 3
    row.queue.close()
    assert len(row.cache) == 0


def test_what_was_used_stays_and_the_oldest_goes(tmp_path: Path) -> None:
    row = Row(tmp_path, 5, 3)
    assert row.mapped == [2, 3, 4]
    assert row.queue.files[2].mapping is not None  # a use
    assert row.queue.files[0].mapping is not None
    assert row.mapped == [0, 2, 4]
    # When all were used there is no end to second chances but the number of files.
    for number in row.mapped:
        assert row.queue.files[number].mapping is not None
    assert row.queue.files[1].mapping is not None
    assert len(row.mapped) == 3
    assert 1 in row.mapped


def test_a_file_that_lost_its_mapping_keeps_its_readers_and_its_bytes(tmp_path: Path) -> None:
    row = Row(tmp_path, 5, 2)
    first = row.queue.files[0]
    mapping, view = first.mapping, first.view
    for file in row.queue.files[1:]:
        file.view  # noqa: B018 - maps it
    assert first.mapped is None
    assert view[9] == 0
    view[9] = 77
    assert memoryview(mapping)[9] == 77
    assert first.view[9] == 77
    first.flush(SIZE)
    assert first.read(9, 1) == b"M"


def test_deleted_files_leave_the_cache_and_stay_mapped(tmp_path: Path) -> None:
    row = Row(tmp_path, 5, 2)
    first = row.queue.files[0]
    row.queue.delete_first([first])
    assert first not in row.cache._files
    for file in row.queue.files:
        file.view  # noqa: B018 - maps it
    assert first.view[5] == 0
    assert len(row.cache) == 2


def test_threads_that_map_at_once(tmp_path: Path) -> None:
    row = Row(tmp_path, 20, 4)
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(3000):
                number = chance.randrange(20)
                assert row.queue.files[number].view[chance.randrange(SIZE)] == number
        except BaseException as error:  # reported below
            failures.append(error)
            raise

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    assert len(row.cache) == 4
    row.queue.close()
    assert len(row.cache) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="counts mappings in /proc")
@pytest.mark.parametrize(("count", "kind"), [(1500, ()), (400, ("ext",))])
def test_a_store_of_more_queues_than_may_be_mapped(
    tmp_path: Path, count: int, kind: tuple[str, ...]
) -> None:
    """``make many-queues`` does the same with 70,000 queues and the limits as they are."""
    limits = ("40", "60", "30")  # reading, appending, private copies
    done = run_python(PROGRAM.read_text(), str(tmp_path / "store"), str(count), *limits, *kind)
    assert (done.stderr, done.returncode) == ("", 0)
    figures = json.loads(done.stdout)
    # Besides those of the queues there are libraries and threads.
    assert figures["mappings"] < 40 + 60 + 30 + 150
    assert figures["descriptors"] < 60


def test_the_limits_leave_room_for_all_else() -> None:
    """Files held for appending come on top; the system's limit is 65,530."""
    from rocketstore.dispatch.dispatcher import MAX_PINNED_QUEUE_FILES
    from rocketstore.files.mapped_file_queue import MAX_PRIVATE_FILES

    held = mapping_cache.QUEUE_MAPPINGS.limit + MAX_PINNED_QUEUE_FILES + MAX_PRIVATE_FILES
    assert held < 65_530 - 16_384  # a log's segments and an index's files
