"""An exception of a signal's handler, at any place of a consumer, blocks no queue."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rocketstore
from rocketstore.consumer import consumer as consumer_module

FOLDER = os.path.dirname(consumer_module.__file__)
COUNT = 10


class _Interrupt(Exception):  # noqa: N818 - as a handler raises it
    pass


def interrupted(call: Callable[[], Any], place: int) -> bool:
    """Call; raise at a place in the consumer's modules: where a call begins, or returned from C.

    There the interpreter runs handlers of signals. Return whether the place was reached.
    """
    left = place

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        is_ours = os.path.dirname(frame.f_code.co_filename) == FOLDER
        if event in ("call", "c_return") and is_ours and frame.f_code.co_name != "__del__":
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise _Interrupt

    sys.setprofile(on_event)
    try:
        call()
    except _Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize("ack", ["next", "manual"])
def test_an_interrupted_poll_blocks_no_queue(tmp_path: Path, ack: Any) -> None:
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_commit_log=1 << 20) as store:
        for number in range(COUNT):
            store.put("T", b"%d" % number)
        store.wait_dispatched()
        place, is_inside = 0, True
        while is_inside:
            with store.consumer(f"g{ack}{place}", "T", ack=ack) as consumer:
                for message in consumer.poll(3):
                    if ack == "manual":
                        consumer.ack(message)
                is_inside = interrupted(functools.partial(consumer.poll, 3), place)
                found: list[bytes] = []
                while messages := consumer.poll(4):
                    found += [message.body for message in messages]
                    if ack == "manual":
                        for message in messages:
                            consumer.ack(message)
            wanted = [b"%d" % number for number in range(COUNT)]
            if is_inside:
                starts = [number for number in (0, 3, 6) if found == wanted[number:]]
                assert starts, f"place {place}: {found}"
            place += 1
        assert place > 30
