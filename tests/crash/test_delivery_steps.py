"""A store that is left at each step of a delivery: each message is delivered once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.abandoning import abandon
from support.delayed_stores import DelayedStore, bodies

MESSAGES = 12
STEPS = ("_put", "_put done", "_sync_log", "_sync_log done", "save", "save done")


class LeftError(BaseException):
    """The process ends here."""


class Steps:
    """Raises ``LeftError`` when ``step`` is reached for the ``number``-th time."""

    def __init__(self, step: str, number: int) -> None:
        self.step, self.left = step, number

    def reach(self, step: str) -> None:
        self.left -= step == self.step
        if step == self.step and self.left == 0:
            raise LeftError

    def watched(self, name: str, call: Any) -> Any:
        def watching(*arguments: Any) -> Any:
            self.reach(name)
            result = call(*arguments)
            self.reach(f"{name} done")
            return result

        return watching


def deliver_by_two(delayed: DelayedStore, store: rocketstore.DefaultMessageStore) -> None:
    """Deliver two messages each second, and persist the offsets each other second."""
    service = store.delay_service
    assert service is not None
    for turn in range(8):
        delayed.clock.now += 1000
        store.deliver_due(max_count=2)
        if turn % 2:
            service.persist()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["pool", "sync", "batch queue"])
def test_left_at_a_step(kind: str, step: str, tmp_path: Path) -> None:
    delayed = DelayedStore(
        tmp_path / "s",
        flush_disk_type="SYNC_FLUSH" if kind == "sync" else "ASYNC_FLUSH",
        transient_store_pool_enable=kind == "pool",
    )
    if kind == "batch queue":
        attributes = '{"topicName":"T","attributes":{"queue.type":"BatchCQ"}}'
        (delayed.root / "config").mkdir(parents=True)
        topics = delayed.root / "config" / "topics.json"
        topics.write_text(f'{{"topicConfigTable":{{"T":{attributes}}}}}')
    store = delayed.open(start=kind == "sync")
    for count in range(MESSAGES):
        store.put("T", b"%d" % count, delay_level=1 + count % 2)
    store.deliver_due()
    service = store.delay_service
    assert service is not None
    steps = Steps(step, 2)
    for part, method in ((service._deliverer, "_put"), (service, "_sync_log")):
        setattr(part, method, steps.watched(method, getattr(part, method)))
    service._table.save = steps.watched("save", service._table.save)  # type: ignore[method-assign]
    with pytest.raises(LeftError):
        deliver_by_two(delayed, store)
    abandon(store)
    expected = sorted(b"%d" % count for count in range(MESSAGES))
    for _ in range(2):
        with delayed.read() as reader:
            waiting = reader.delays().pending
            assert len(bodies(reader)) + waiting == MESSAGES
        with delayed.open() as store:
            delayed.clock.now += 10_000
            assert store.deliver_due() == waiting
            assert store._writer is not None
            store._writer.log.commit()
            assert sorted(bodies(store)) == expected
