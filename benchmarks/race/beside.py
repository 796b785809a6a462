"""A reader beside a writer: one thread puts, and another pulls all queues until it has it all."""

from __future__ import annotations

import threading
import time
from typing import Any

from race.asking import GROUP
from race.messages import QUEUES, MessageSet
from race.putting import check, prepare_put_message
from rocketstore import GetMessageStatus

#: Seconds that the reader rests when a pass over all queues found nothing.
REST_S = 0.001
#: Seconds without a message after which something is wrong.
DEADLINE_S = 60.0


class Reader:
    """Pulls queue after queue by turns, from their present ends on, and copies each body."""

    def __init__(self, store: Any, chosen: MessageSet, most: int) -> None:
        self._get_message = store.get_message
        self._most = most
        self._offsets = {
            (topic, queue): store.max_offset_in_queue(topic, queue)
            for topic in chosen.topics
            for queue in range(QUEUES)
        }

    def read(self, count: int) -> None:
        """Read so many messages."""
        deadline = time.monotonic() + DEADLINE_S
        done = 0
        while done < count:
            found = self._pass()
            done += found
            if found:
                deadline = time.monotonic() + DEADLINE_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"the reader got {done} of {count} messages")
            else:
                time.sleep(REST_S)
        if done > count:
            raise AssertionError(f"the reader got {done} messages instead of {count}")

    def _pass(self) -> int:
        """Pull each queue once; return the number of messages."""
        done, get_message, most = 0, self._get_message, self._most
        for place, offset in self._offsets.items():
            result = get_message(GROUP, *place, offset, most)
            if result.status == GetMessageStatus.FOUND:
                self._offsets[place] = result.next_begin_offset
                for message in result.messages:
                    message.body  # noqa: B018 - decodes it
                done += len(result.messages)
        return done


def put_and_read(
    store: Any, chosen: MessageSet, most: int, first: int, count: int, step: int
) -> dict[str, int]:
    """Put with ``put_message`` while a thread reads; ``read`` counts until it has all of it."""
    assert store.wait_dispatched()
    reader = Reader(store, chosen, most)
    wall = read = process = 0
    for at in range(first, first + count, step):
        plain = list(chosen.plain(at, min(step, first + count - at)))
        work, go = prepare_put_message(store, plain), threading.Event()
        errors: list[Exception] = []

        def run(count: int, go: Any, errors: list[Exception]) -> None:
            go.wait()
            try:
                reader.read(count)
            except Exception as error:  # noqa: BLE001 - raised by the caller
                errors.append(error)

        thread = threading.Thread(target=run, args=(len(plain), go, errors), daemon=True)
        thread.start()
        time.sleep(0.005)  # it waits now
        process -= time.process_time_ns()
        began = time.perf_counter_ns()
        go.set()
        results = list(work())
        wall += time.perf_counter_ns() - began
        thread.join()
        read += time.perf_counter_ns() - began
        process += time.process_time_ns()
        if errors:
            raise errors[0]
        check(results)
    return {"wall": wall, "cpu": process, "process": process, "count": count, "read": read}
