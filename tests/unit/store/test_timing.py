"""``timers`` of an open store: in each mode, and what it costs those who do not use it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import rocketstore
from rocketstore.arguments import Mode
from support.own_process import run_python
from support.timer_files import TimedStore, after

PROGRAM = """
import sys
import rocketstore

with rocketstore.open(sys.argv[1], "a") as store:
    store.put("T", b"x")
with rocketstore.open(sys.argv[1]) as store:
    assert store.get_message("g", "T", 0, 0).messages
print([name for name in sys.modules if "rocketstore.timer" in name])
"""


def test_nothing_of_the_timer_is_imported_without_need(tmp_path: Path) -> None:
    process = run_python(PROGRAM, str(tmp_path / "store"))
    assert process.stdout.strip() == "[]", process.stderr


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_both_modes(tmp_path: Path, mode: Mode) -> None:
    timed = TimedStore(tmp_path / "store")
    timed.put(after(5_000))
    with rocketstore.open(timed.root, mode) as store:
        assert len(store.timers()) == len(list(store.timers().pending)) == 1
        with pytest.raises(io.UnsupportedOperation, match="does not deliver"):
            store.timers(deliver=True)
    with pytest.raises(rocketstore.StoreClosedError):
        store.timers()


def test_a_reader_sees_more_after_refresh(tmp_path: Path) -> None:
    timed = TimedStore(tmp_path / "store")
    timed.put(after(5_000))
    with rocketstore.open(timed.root) as store:
        timed.put(after(6_000))
        store.refresh()
        assert len(store.timers()) == 2


async def _put(store: rocketstore.DefaultMessageStore) -> rocketstore.PutMessageResult:
    return await store.aput("T", b"x", properties=after(5_000))


def test_aput_moves_the_message_too(tmp_path: Path) -> None:
    import asyncio

    with rocketstore.open(tmp_path / "store", "x", timer_wheel_enable=True) as store:
        assert asyncio.run(_put(store)).status == rocketstore.PutMessageStatus.PUT_OK
        assert store.wait_dispatched(10)
        assert len(store.timers()) == 1
