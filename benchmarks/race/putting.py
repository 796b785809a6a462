"""Puts by each public call of rocketstore; arguments are made before the clock starts."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from race.messages import BORN_HOST, MessageSet, Plain
from race.worker import Clock
from rocketstore import Message, MessageBatch

#: A prepared put: the timed part, which returns results for ``check``.
Prepared = Callable[[], Iterable[Any]]


def _message(plain: Plain) -> Message:
    kind = plain.kind
    return Message(
        plain.topic, plain.body, queue_id=plain.queue, sys_flag=kind.sys_flag,
        born_timestamp=plain.born_timestamp, born_host=BORN_HOST,
        reconsume_times=kind.reconsume_times, properties=plain.properties,
        prepared_transaction_offset=kind.prepared_transaction_offset,
    )  # fmt: skip


def _named(plain: Plain) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of ``put`` by place, and those by name."""
    kind, properties = plain.kind, plain.properties
    named = {"born_timestamp": plain.born_timestamp, "born_host": BORN_HOST}
    if list(properties) == ["KEYS", "UNIQ_KEY", "WAIT", "TAGS"]:
        # As a program of its own would call it: the same bytes, in another order.
        by_place = (plain.topic, plain.body, plain.queue, properties["TAGS"], properties["KEYS"])
        wait = {"WAIT": properties["WAIT"]}
        return by_place, {**named, "unique_key": properties["UNIQ_KEY"], "properties": wait}
    named |= {
        "properties": properties, "sys_flag": kind.sys_flag,
        "reconsume_times": kind.reconsume_times,
        "prepared_transaction_offset": kind.prepared_transaction_offset,
    }  # fmt: skip
    return (plain.topic, plain.body, plain.queue), named


def _put(store: Any, plain: list[Plain]) -> Prepared:
    calls, put = [_named(one) for one in plain], store.put
    return lambda: [put(*by_place, **named) for by_place, named in calls]


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process."""
    return asyncio.new_event_loop()


def _aput(store: Any, plain: list[Plain]) -> Prepared:
    calls, aput = [_named(one) for one in plain], store.aput

    async def put_all() -> list[Any]:
        return [await aput(*by_place, **named) for by_place, named in calls]

    return lambda: _loop().run_until_complete(put_all())


def prepare_put_message(store: Any, plain: list[Plain]) -> Prepared:
    messages, put_message = [_message(one) for one in plain], store.put_message
    return lambda: [put_message(message) for message in messages]


def _put_many(store: Any, plain: list[Plain]) -> Prepared:
    messages = [_message(one) for one in plain]
    return lambda: [store.put_many(messages)]


def _put_messages(store: Any, plain: list[Plain]) -> Prepared:
    """One batch for the queue of the first message."""
    first = plain[0]
    batch = MessageBatch(
        [_message(one) for one in plain], topic=first.topic, queue_id=first.queue,
        born_timestamp=first.born_timestamp, born_host=BORN_HOST,
    )  # fmt: skip
    return lambda: [store.put_messages(batch)]


def _put_columns(store: Any, plain: list[Plain]) -> Prepared:
    """One queue, and the properties of the first message, for all."""
    first = plain[0]
    data = b"".join(one.body for one in plain)
    offsets = np.zeros(len(plain) + 1, np.int64)
    np.cumsum([len(one.body) for one in plain], out=offsets[1:])
    return lambda: [
        store.put_columns(
            first.topic, offsets, data, queue_id=first.queue, properties=first.properties,
            born_timestamp=first.born_timestamp, born_host=BORN_HOST,
        )
    ]  # fmt: skip


CALLS: dict[str, Callable[[Any, list[Plain]], Prepared]] = {
    "put": _put,
    "aput": _aput,
    "put_message": prepare_put_message,
    "put_many": _put_many,
    "put_messages": _put_messages,
    "put_columns": _put_columns,
}


def check(results: Iterable[Any]) -> None:
    for result in results:
        if not result.ok:
            raise AssertionError(f"a put answered {result}")


def put(
    store: Any, chosen: MessageSet, call: str, first: int, count: int, step: int, *, wait: bool
) -> dict[str, int]:
    """Put ``count`` messages, ``step`` made at a time; ``wait``: each time until dispatched."""
    clock = Clock()
    prepare = CALLS[call]
    for at in range(first, first + count, step):
        plain = list(chosen.plain(at, min(step, first + count - at)))
        work = prepare(store, plain)
        with clock:
            results = work()
            if wait:
                assert store.wait_dispatched()
        check(results)
    return clock.answer(count)


def futures(
    store: Any, chosen: MessageSet, width: int, first: int, count: int, step: int
) -> dict[str, int]:
    """Put with ``aput`` by coroutines of one loop; CPU time is the process's."""
    clock, aput = Clock(), store.aput
    for at in range(first, first + count, step):
        calls = iter([_named(one) for one in chosen.plain(at, min(step, first + count - at))])
        results: list[Any] = []

        async def put_on(calls: Any, results: list[Any]) -> None:
            for by_place, named in calls:
                results.append(await aput(*by_place, **named))

        async def put_all(calls: Any, results: list[Any]) -> None:
            await asyncio.gather(*(put_on(calls, results) for _ in range(width)))

        with clock:
            _loop().run_until_complete(put_all(calls, results))
        check(results)
    return {**clock.answer(count), "cpu": clock.process}


def threads(
    store: Any, chosen: MessageSet, width: int, first: int, count: int, step: int
) -> dict[str, int]:
    """Put with ``put_message`` by threads that start together; CPU time is the process's."""
    wall = process = 0
    for at in range(first, first + count, step):
        plain = list(chosen.plain(at, min(step, first + count - at)))
        bounds = [len(plain) * number // width for number in range(width + 1)]
        go = threading.Event()
        results: list[list[Any]] = [[] for _ in range(width)]
        errors: list[Exception] = []

        def run(number: int, work: Prepared, go: Any, results: Any, errors: Any) -> None:
            go.wait()
            try:
                results[number] = list(work())
            except Exception as error:  # noqa: BLE001 - raised by the caller
                errors.append(error)

        workers = [
            threading.Thread(
                target=run,
                args=(
                    number, prepare_put_message(store, plain[bounds[number] : bounds[number + 1]]),
                    go, results, errors,
                ),
            )
            for number in range(width)
        ]  # fmt: skip
        for worker in workers:
            worker.start()
        time.sleep(0.005)  # all of them wait now
        process -= time.process_time_ns()
        wall -= time.perf_counter_ns()
        go.set()
        for worker in workers:
            worker.join()
        wall += time.perf_counter_ns()
        process += time.process_time_ns()
        if errors:
            raise errors[0]
        for result in results:
            check(result)
    return {"wall": wall, "cpu": process, "process": process, "count": count}
