"""A process that delivers delayed messages, killed at random moments: nothing is lost, and nothing
is delivered twice."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

import rocketstore
from crash import killing
from crash.delivering_writer import OPTIONS
from rocketstore import formats
from rocketstore.message import StoredMessage

WRITER = Path(__file__).with_name("delivering_writer.py")
KILLS = int(os.environ.get("ROCKETSTORE_DELIVERY_KILLS", "3"))
#: A store is read whole after each kill, so it must not become large.
KILLS_OF_A_STORE = 20
FAR_MS = 3_600_000


def identity(message: StoredMessage) -> tuple[int, bytes]:
    return message.delay_level, message.body


def check_deliveries(root: Path, *, finish: bool) -> int:
    """Check that no message was delivered twice, and each level in order; deliver the rest."""
    with rocketstore.open(root) as reader:
        last = max((m.store_timestamp for m in reader.scan()), default=0)
    if finish:
        settings = {**OPTIONS, "schedule_message_enable": False}
        with rocketstore.open(root, "r+", clock=lambda: last + FAR_MS, **settings) as store:
            store.deliver_due()
            assert store.delays().pending == 0
    with rocketstore.open(root, message_delay_level=OPTIONS["message_delay_level"]) as reader:
        messages = [message.detach() for message in reader.scan()]
    delayed = [m for m in messages if m.topic == formats.TOPIC_SCHEDULE]
    delivered = [m for m in messages if m.topic != formats.TOPIC_SCHEDULE]
    assert max(Counter(map(identity, delivered)).values(), default=1) == 1
    for level in (1, 2):
        put = [identity(m) for m in delayed if m.delay_level == level]
        done = [identity(m) for m in delivered if m.delay_level == level]
        assert done == put[: len(done)]
    if finish:
        assert len(delivered) == len(delayed)
    return len(delivered)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_killed_delivery_loses_nothing_and_repeats_nothing(
    flush_disk_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killing, "WRITER", WRITER)
    name = f"{flush_disk_type}-{random.SystemRandom().randrange(1 << 31)}"
    print(f"seed {name!r}")
    chance = random.Random(name)
    for first in range(0, KILLS, KILLS_OF_A_STORE):
        root, acknowledged = tmp_path / f"store-{first}", killing.Acknowledged()
        for kill in range(first, min(first + KILLS_OF_A_STORE, KILLS)):
            moment = killing.KillMoment.choose(chance)
            least = 30 if kill == first else 0
            output = killing.run_and_kill(root, flush_disk_type, kill, moment, least_rows=least)
            acknowledged.take(output)
            check_deliveries(root, finish=chance.random() < 0.2)
        assert check_deliveries(root, finish=True) >= len(acknowledged.rows)
        killing.check_store(root, acknowledged)
        shutil.rmtree(root)
