"""Whole stores: dispatch, recovery, opening and closing, verify."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rocketstore
from check import messages, stores
from check.counter import CountedPath
from check.messages import SIZES
from rocketstore import DefaultMessageStore
from rocketstore.log.scan import LogScan
from rocketstore.status import RecordFlags

COUNT = 1024
#: The sizes of files decide how much an opening and a check read.
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 18,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 5_000,
    "max_index_num": 20_000,
}


def paths() -> Iterator[CountedPath]:
    """Yield the paths; a store of its own for each size of messages."""
    for size, nbytes in SIZES.items():
        with stores.empty() as store:
            yield _reput(f"reput.{size}", store, nbytes)
            yield _recovery(f"recovery.{size}", store)
    with stores.filled(COUNT, 100, **SMALL) as store:
        store.flush()
        yield _verify(store)
    yield from _opening()


def _reput(name: str, store: DefaultMessageStore, nbytes: int) -> CountedPath:
    given = messages.many(COUNT, nbytes)

    def prepare() -> None:
        store.put_many(given)
        assert store.dispatch_behind_nbytes > 0

    def work() -> None:
        store.wait_dispatched()

    return CountedPath(name=name, work=work, units=COUNT, of="message", loops=0, prepare=prepare)


def _recovery(name: str, store: DefaultMessageStore) -> CountedPath:
    """Return the path of the check with CRC that recovery makes of every record."""
    log = store.reader.log
    count = sum(1 for _ in store.scan())

    def work() -> None:
        scan = LogScan(log, 0, log.max_offset, int(RecordFlags.CHECK_BODY_CRC))
        assert sum(batch.count for batch in scan) == count

    return CountedPath(name=name, work=work, units=count, of="message", loops=0)


def _verify(store: DefaultMessageStore) -> CountedPath:
    def work() -> None:
        assert store.verify().ok

    return CountedPath(name="verify.100B", work=work, units=COUNT, of="message", loops=0)


def _opening() -> Iterator[CountedPath]:
    with stores.folder() as path:
        place = path / "store"
        with rocketstore.open(place, "x", start=False, **SMALL) as store:
            assert all(result.ok for result in store.put_many(16 * messages.many(16, 100)))
        opened: list[DefaultMessageStore] = []

        def close() -> None:
            while opened:
                opened.pop().close()

        def open_writing() -> None:
            opened.append(rocketstore.open(place, "r+", start=False))

        def open_reading() -> None:
            opened.append(rocketstore.open(place))

        def close_reading() -> None:
            opened.pop().close()

        works = {"open.clean.writing": open_writing, "open.clean.reading": open_reading}
        for name, work in works.items():
            yield CountedPath(name=name, work=work, units=1, of="call", loops=0, prepare=close)
        close()
        yield CountedPath(
            name="close.reading", work=close_reading, units=1, of="call", loops=0,
            prepare=open_reading,
        )  # fmt: skip
