"""Puts that are awaited: on disk when they complete, in order, one call into each loop per sync."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, PutMessageStatus, ServiceFailedError, StoreClosedError
from rocketstore.flush.async_appends import AsyncAppends
from rocketstore.flush.loop_waiters import WaitersOfLoop
from support.syncs import LONG_S, HeldSyncs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")

#: Room for every record: appended on the loop's thread.
WIDE: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20}
#: Never room for the longest record: appended on the store's own thread.
NARROW: dict[str, Any] = {"mapped_file_size_commit_log": 16 * 1024}
#: Long enough for a slow test or a busy disk.
PATIENT: dict[str, Any] = {"sync_flush_timeout": 1000 * int(LONG_S)}
START = 1_700_000_000_000


def open_sync(root: Path, **options: Any) -> rocketstore.DefaultMessageStore:
    options = {**WIDE, **PATIENT, **options}
    return rocketstore.open(root, "a", flush_disk_type="SYNC_FLUSH", **options)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LONG_S):
            await main

    asyncio.run(bounded())


async def appended(store: rocketstore.DefaultMessageStore, count: int) -> None:
    """Wait until so many messages are in the log; one that is cancelled before never gets there."""
    while sum(1 for _ in store.scan()) < count:
        await asyncio.sleep(0.01)


async def in_thread(call: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


@pytest.mark.parametrize("options", [WIDE, NARROW], ids=["here", "away"])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("start", [True, False])
def test_what_completed_is_stored_in_the_order_of_the_calls(
    tmp_path: Path, options: dict[str, Any], flush_disk_type: str, start: bool
) -> None:
    async def main() -> None:
        with rocketstore.open(
            tmp_path / "s", "x", flush_disk_type=flush_disk_type, start=start, **options, **PATIENT
        ) as store:
            puts = [store.aput("T", b"%d" % n, n % 3, "Tag", f"k{n}") for n in range(300)]
            results = await asyncio.gather(*puts)
            assert all(result.ok for result in results)
            offsets = [result.physical_offset for result in results]
            assert offsets == sorted(offsets)
            assert [result.queue_offset for result in results] == [n // 3 for n in range(300)]
            if flush_disk_type == "SYNC_FLUSH":
                assert store.flushed_offset >= offsets[-1] + results[-1].nbytes
            many = await store.aput_many(Message("U", b"%d" % n) for n in range(300))
            assert many.ok
            assert list(many.queue_offsets) == list(range(300))

    run(main())
    with rocketstore.open(tmp_path / "s") as store:
        wanted = [b"%d" % number for number in range(300)]
        assert [message.body for message in store.scan()] == wanted * 2


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_over_the_transient_store_pool(tmp_path: Path, flush_disk_type: str) -> None:
    """With SYNC_FLUSH what completed is committed, too, so that it is read."""

    async def main() -> None:
        with rocketstore.open(
            tmp_path / "s",
            "x",
            flush_disk_type=flush_disk_type,
            transient_store_pool_enable=True,
            **WIDE,
            **PATIENT,
        ) as store:
            results = await asyncio.gather(*(store.aput("T", b"%d" % n) for n in range(100)))
            assert all(result.ok for result in results)
            if flush_disk_type == "SYNC_FLUSH":
                assert sum(1 for _ in store.scan()) == 100
                assert store.flushed_offset == store.max_physical_offset

    run(main())
    with rocketstore.open(tmp_path / "s") as store:
        assert [message.body for message in store.scan()] == [b"%d" % n for n in range(100)]


def test_arguments_are_those_of_put(tmp_path: Path) -> None:
    async def main() -> None:
        with open_sync(tmp_path / "s") as store:
            result = await store.aput(
                "T", b"x", 2, "Tag", ["a", "b"], properties={"p": "v"}, flag=7, born_timestamp=5
            )
            message = store.look_message_by_offset(result.physical_offset)
            assert message is not None
            assert (message.tags, message.keys, message.flag) == ("Tag", "a b", 7)
            assert (message.queue_id, message.born_timestamp) == (2, 5)
            assert message.properties["p"] == "v"
            with pytest.raises(TypeError):
                await store.aput("T", "text")
            with pytest.raises(TypeError):
                await store.aput("T", b"x", no_such=1)
            refused = await store.aput("T", bytes(5 << 20))
            assert refused.status == PutMessageStatus.MESSAGE_ILLEGAL

    run(main())


def test_one_sync_completes_all_by_one_call_into_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = HeldSyncs(monkeypatch)

    async def main() -> None:
        with open_sync(tmp_path / "s") as store:
            loop = asyncio.get_running_loop()
            with syncs.held():
                first = asyncio.create_task(store.aput("T", b"first"))
                await in_thread(syncs.begun.wait, LONG_S)
                others = [asyncio.create_task(store.aput("T", b"x")) for _ in range(3000)]
                await appended(store, 3001)
                before, calls = threading.active_count(), 0
                call_soon = loop.call_soon_threadsafe

                def counted(*call: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    return call_soon(*call)

                monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
                assert not any(put.done() for put in [first, *others])
                assert threading.active_count() == before
            await asyncio.gather(first, *others)
            assert calls == 2  # one for the sync that was held, one for all after it
            assert syncs.count == 2

    run(main())


def test_a_message_that_does_not_wait_completes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = HeldSyncs(monkeypatch)

    async def main() -> None:
        with open_sync(tmp_path / "s") as store, syncs.held():
            assert (await store.aput("T", b"x", wait_store_msg_ok=False)).ok
            mixed = [Message("T", b"x", properties={"WAIT": "false"})] * 3
            assert (await store.aput_many(mixed)).ok

    run(main())


def test_cancelling_ends_the_wait_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = HeldSyncs(monkeypatch)

    async def main() -> None:
        with open_sync(tmp_path / "s") as store:
            with syncs.held():
                puts = [asyncio.create_task(store.aput("T", b"%d" % n)) for n in range(10)]
                await in_thread(syncs.begun.wait, LONG_S)
                await appended(store, len(puts))
                for put in puts[::2]:
                    put.cancel()
                done = await asyncio.gather(*puts[::2], return_exceptions=True)
                assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done)
            assert all(result.ok for result in await asyncio.gather(*puts[1::2]))
            assert [message.body for message in store.scan()] == [b"%d" % n for n in range(10)]

    run(main())


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_what_is_put_after_a_cancelled_call_is_stored_after_it(
    tmp_path: Path, flush_disk_type: str
) -> None:
    """A call that was cancelled while the store's thread appended was no longer counted, and the
    next message got between its messages."""

    class Slow:
        """A message that is appended when it may be."""

        def __getattr__(self, name: str) -> Any:
            if name == "body":
                begun.set()
                assert go_on.wait(LONG_S)
            return getattr(Message("T", b"many"), name)

    begun, go_on = threading.Event(), threading.Event()

    async def main() -> None:
        with rocketstore.open(
            tmp_path / "s", "x", flush_disk_type=flush_disk_type, **WIDE, **PATIENT
        ) as store:
            assert (await store.aput("T", b"first")).ok
            many = asyncio.create_task(store.aput_many([Slow()] * 3))
            await in_thread(begun.wait, LONG_S)
            queued = asyncio.create_task(store.aput("T", b"never"))
            await asyncio.sleep(0)
            for put in (many, queued):
                put.cancel()
            await asyncio.gather(many, queued, return_exceptions=True)
            last = asyncio.create_task(store.aput("T", b"last"))
            for _ in range(10):
                await asyncio.sleep(0)
            go_on.set()
            assert (await last).ok
            # Here again, and without the thread, once the loop has heard of it.
            appends = store._async_appends
            assert appends is not None
            while not appends.may_put_here(b""):
                await asyncio.sleep(0)

    run(main())
    with rocketstore.open(tmp_path / "s") as store:
        bodies = [message.body for message in store.scan()]
        assert bodies == [b"first", *[b"many"] * 3, b"last"]


@pytest.mark.parametrize("options", [WIDE, NARROW], ids=["here", "away"])
def test_flush_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    syncs = HeldSyncs(monkeypatch)

    async def main() -> None:
        with open_sync(tmp_path / "s", sync_flush_timeout=20, **options) as store:
            with syncs.held():
                result = await store.aput("T", b"x")
                assert result.status == PutMessageStatus.FLUSH_DISK_TIMEOUT
                assert result.appended
                assert result.msg_id is not None
                other = Message("T", b"y", properties={"WAIT": "false"})
                many = await store.aput_many([Message("T", b"x"), other])
                statuses = [PutMessageStatus.FLUSH_DISK_TIMEOUT, PutMessageStatus.PUT_OK]
                assert [one.status for one in many] == statuses
                # The deadline of a later one is later.
                late = [asyncio.create_task(store.aput("T", b"z")) for _ in range(3)]
                await asyncio.sleep(0.03)
                late += [asyncio.create_task(store.aput("T", b"z")) for _ in range(3)]
                outcomes = {(await put).status for put in late}
                assert outcomes == {PutMessageStatus.FLUSH_DISK_TIMEOUT}
            assert sum(1 for _ in store.scan()) == 9

    run(main())


def test_flush_time_out_of_a_master_without_its_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave's answer wins, as it does for ``put``; here the disk's did."""
    syncs = HeldSyncs(monkeypatch)
    role: dict[str, Any] = {"broker_role": "SYNC_MASTER", "broker_version": "4.9.8"}

    async def main() -> None:
        with open_sync(tmp_path / "s", sync_flush_timeout=20, **role) as store, syncs.held():
            wanted = PutMessageStatus.SLAVE_NOT_AVAILABLE
            assert (await store.aput("T", b"x")).status == wanted
            assert [one.status for one in await store.aput_many([Message("T", b"x")])] == [wanted]
            assert (await in_thread(store.put, "T", b"x")).status == wanted

    run(main())


def test_g03_all_that_wait_hear_of_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = HeldSyncs(monkeypatch)

    async def main() -> None:
        store = open_sync(tmp_path / "s")
        assert (await store.aput("T", b"good")).ok
        with syncs.held():
            puts = [asyncio.create_task(store.aput("T", b"%d" % n)) for n in range(200)]
            await in_thread(syncs.begun.wait, LONG_S)
            syncs.failing = True
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ServiceFailedError}
        syncs.failing = False  # a later success proves nothing
        with pytest.raises(ServiceFailedError):
            await store.aput("T", b"late")
        with pytest.raises(ServiceFailedError):
            await store.aput_many([Message("T", b"late")])
        with pytest.raises(ServiceFailedError):
            store.close()
        assert (tmp_path / "s" / "abort").exists()

    run(main())


def test_several_loops_in_several_threads(tmp_path: Path) -> None:
    count, outcomes = 400, []

    async def put_all(store: rocketstore.DefaultMessageStore, number: int) -> None:
        async def put_one(n: int) -> bool:
            result = await store.aput("T", b"%d %d" % (number, n), number)
            assert store.flushed_offset >= result.physical_offset + result.nbytes
            return bool(result.ok)

        outcomes.append(all(await asyncio.gather(*map(put_one, range(count)))))

    with open_sync(tmp_path / "s") as store:
        threads = [
            threading.Thread(target=run, args=(put_all(store, number),)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert outcomes == [True] * 4
        for number in range(4):
            bodies = [m.body for m in store.scan() if m.queue_id == number]
            assert bodies == [b"%d %d" % (number, n) for n in range(count)]


def test_a_loop_that_is_closed_meanwhile_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = HeldSyncs(monkeypatch)
    with open_sync(tmp_path / "s") as store:
        with syncs.held():
            gone = asyncio.new_event_loop()
            puts = [gone.create_task(store.aput("T", b"gone")) for _ in range(3)]
            gone.run_until_complete(asyncio.sleep(0))
            assert syncs.begun.wait(LONG_S)
            gone.run_until_complete(appended(store, len(puts)))
            for put in puts:
                put.cancel()
            gone.run_until_complete(asyncio.gather(*puts, return_exceptions=True))
            gone.close()
        assert store.put("T", b"thread").ok

        async def main() -> None:
            assert (await store.aput("T", b"here")).ok

        run(main())
        bodies = [message.body for message in store.scan()]
        assert bodies == [b"gone"] * 3 + [b"thread", b"here"]


@pytest.mark.parametrize("options", [WIDE, NARROW], ids=["here", "away"])
def test_closing_the_store_completes_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    syncs = HeldSyncs(monkeypatch)

    async def main() -> None:
        store = open_sync(tmp_path / "s", **options)
        with syncs.held():
            puts = [asyncio.create_task(store.aput("T", b"x")) for _ in range(20)]
            await in_thread(syncs.begun.wait, LONG_S)
            await appended(store, len(puts))
            closing = asyncio.ensure_future(in_thread(store.close))
            while not store.closed:
                await asyncio.sleep(0)
        await closing
        assert all(result.ok for result in await asyncio.gather(*puts))
        with pytest.raises(StoreClosedError):
            await store.aput("T", b"late")

    run(main())
    with rocketstore.open(tmp_path / "s") as store:
        assert sum(1 for _ in store.scan()) == 20


@pytest.mark.parametrize("start", [True, False])
def test_closing_the_store_before_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bool
) -> None:
    """The store's thread had appended, and no service was left to sync: the put raised
    StoreClosedError, as if nothing was stored, although closing synced the message."""
    syncs = HeldSyncs(monkeypatch)

    async def main() -> None:
        store = open_sync(tmp_path / "s", start=start, **NARROW)
        service = store._writing().group_commit
        assert service is not None
        monkeypatch.setattr(service, "run_once", lambda: False)  # only closing syncs
        with syncs.held():
            put = asyncio.create_task(store.aput("T", b"x"))
            await asyncio.sleep(0)
            # The loop is busy until the store is nearly closed.
            while store.max_physical_offset == 0:
                threading.Event().wait(0.001)
            closing = threading.Thread(target=store.close)
            closing.start()
            assert syncs.begun.wait(LONG_S)
            assert not service.is_running
            waiting = store._writer.flushed.loops  # type: ignore[union-attr]
            while not put.done() and len(waiting) == 0:
                await asyncio.sleep(0)
        assert (await put).ok
        await in_thread(closing.join)

    run(main())
    with rocketstore.open(tmp_path / "s") as store:
        assert [message.body for message in store.scan()] == [b"x"]


def test_closing_on_the_loop_itself(tmp_path: Path) -> None:
    async def main() -> None:
        store = open_sync(tmp_path / "s")
        puts = [asyncio.create_task(store.aput("T", b"x")) for _ in range(20)]
        await asyncio.sleep(0)
        store.close()
        assert all(result.ok for result in await asyncio.gather(*puts))

    run(main())


def test_a_store_that_is_only_read_refuses(tmp_path: Path) -> None:
    open_sync(tmp_path / "s").close()

    async def main() -> None:
        with rocketstore.open(tmp_path / "s") as store:
            with pytest.raises(io.UnsupportedOperation):
                await store.aput("T", b"x")
            with pytest.raises(io.UnsupportedOperation):
                await store.aput_many([])

    run(main())


def test_threads_and_loops_wait_for_the_same_syncs(tmp_path: Path) -> None:
    with open_sync(tmp_path / "s") as store:
        done: list[bool] = []

        def put_some() -> None:
            done.append(all(store.put("T", b"x").ok for _ in range(50)))

        async def main() -> None:
            async def put_some_here() -> None:
                for _ in range(50):
                    assert (await store.aput("T", b"x")).ok

            await asyncio.gather(*(put_some_here() for _ in range(8)))

        threads = [threading.Thread(target=put_some) for _ in range(8)]
        for thread in threads:
            thread.start()
        run(main())
        for thread in threads:
            thread.join(LONG_S)
        assert done == [True] * 8
        assert sum(1 for _ in store.scan()) == 16 * 50


def test_lines_of_closed_loops_are_forgotten(tmp_path: Path) -> None:
    with open_sync(tmp_path / "s") as store:

        async def main() -> None:
            assert (await store.aput("T", b"x")).ok

        for _ in range(5):
            run(main())
        assert store._writer is not None
        loops = store._writer.flushed.loops
        assert len(loops._lines) <= 1
        last = time.monotonic() + LONG_S
        while len(loops):  # the thread that completed the last put may still be at its line
            assert time.monotonic() < last
            time.sleep(0.01)


def test_the_wait_is_over_once_when_the_sync_comes_with_the_deadline() -> None:
    """The timer takes what is late, the sync what is ready: neither what the other took."""

    async def main() -> None:
        line = WaitersOfLoop(asyncio.get_running_loop())
        futures = [line.add(offset, 0.0, _Outcome()) for offset in (10, 20)]
        line.reached(10)
        assert len(line) == 1
        outcomes = await asyncio.gather(*futures)
        assert [outcome.status for outcome in outcomes] == [
            PutMessageStatus.PUT_OK,
            PutMessageStatus.FLUSH_DISK_TIMEOUT,
        ]
        assert len(line) == 0
        line.reached(20)

    run(main())


class _Outcome:
    def __init__(self, status: PutMessageStatus = PutMessageStatus.PUT_OK) -> None:
        self.status = status

    def with_flush_status(self, status: PutMessageStatus) -> _Outcome:
        return _Outcome(status)


def test_one_object_however_many_threads_begin(tmp_path: Path) -> None:
    with open_sync(tmp_path / "s") as store:
        seen: list[AsyncAppends] = []

        def begin() -> None:
            seen.append(store._appends(store._writing()))

        threads = [threading.Thread(target=begin) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert len(set(map(id, seen))) == 1


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_the_loop_appends_again_as_soon_as_there_is_room(
    tmp_path: Path, flush_disk_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many puts are always waiting: one that lacked room must not send all later ones to
    the worker thread."""
    submitted: list[str] = []
    answers = [False, False]  # the first put asks twice
    has_room, submit = AsyncAppends._is_room_for, AsyncAppends._submit

    def is_room_for(appends: AsyncAppends, nbytes: int | None) -> bool:
        return answers.pop() if answers else has_room(appends, nbytes)

    def count(appends: AsyncAppends, call: Any) -> Any:
        submitted.append(threading.current_thread().name)
        return submit(appends, call)

    monkeypatch.setattr(AsyncAppends, "_is_room_for", is_room_for)
    monkeypatch.setattr(AsyncAppends, "is_plain", lambda *_: False)
    monkeypatch.setattr(AsyncAppends, "_submit", count)

    async def main() -> None:
        with rocketstore.open(
            tmp_path / "s", "x", flush_disk_type=flush_disk_type, **WIDE, **PATIENT
        ) as store:

            async def put_some(writer: int) -> list[int]:
                puts = [await store.aput("T", b"%d" % n, tags=f"t{writer}") for n in range(5)]
                assert all(put.ok for put in puts)
                return [put.physical_offset for put in puts]

            found = await asyncio.gather(*map(put_some, range(100)))
            assert all(offsets == sorted(offsets) for offsets in found)
            # The first puts of all were called in this order.
            assert [offsets[0] for offsets in found] == sorted(offsets[0] for offsets in found)
            assert len({offset for offsets in found for offset in offsets}) == 500

    run(main())
    assert len(submitted) == 1


class _BadKeys:
    """Keys whose iteration fails as a program's own generator may."""

    def __iter__(self) -> Iterator[str]:
        raise StopIteration


@pytest.mark.parametrize("options", [WIDE, NARROW], ids=["here", "away"])
def test_a_put_that_raises_stop_iteration_stops_no_other(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """A future refuses this error: the put and all later ones of the loop would wait for ever."""

    async def main() -> None:
        with open_sync(tmp_path / "s", **options) as store:
            first, bad, last = await asyncio.gather(
                store.aput("T", b"1"), store.aput("T", b"2", keys=_BadKeys()),
                store.aput("T", b"3"), return_exceptions=True,
            )  # fmt: skip
            assert isinstance(bad, RuntimeError)
            assert "StopIteration" in str(bad)
            assert [first.ok, last.ok] == [True, True]  # type: ignore[union-attr]
            assert [message.body for message in store.scan()] == [b"1", b"3"]

    run(main())


def test_an_interrupt_stops_no_put_in_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, False, True, TimeoutError("a signal's handler raised it")]
    has_room = AsyncAppends._is_room_for

    def is_room_for(appends: AsyncAppends, nbytes: int | None) -> bool:
        answer = answers.pop(0) if answers else has_room(appends, nbytes)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        raised: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
        with open_sync(tmp_path / "s") as store:
            monkeypatch.setattr(AsyncAppends, "_is_room_for", is_room_for)
            results = await asyncio.gather(*(store.aput("T", b"%d" % n) for n in range(20)))
            assert all(result.ok for result in results)
            bodies = [message.body for message in store.scan()]
            assert bodies == [b"%d" % n for n in range(20)]
        assert [str(error) for error in raised] == ["a signal's handler raised it"]
        assert not answers

    run(main())


def test_a_put_in_line_that_is_cancelled_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go_on = threading.Event(), threading.Event()
    submit = AsyncAppends._submit

    def hold(appends: AsyncAppends, call: Any) -> Any:
        def wait_and_call() -> Any:
            held.set()
            assert go_on.wait(LONG_S)
            return call()

        return submit(appends, wait_and_call)

    async def main() -> None:
        with open_sync(tmp_path / "s", **NARROW) as store:
            with monkeypatch.context() as patch:
                patch.setattr(AsyncAppends, "_submit", hold)
                first, *others = (
                    asyncio.ensure_future(store.aput("T", body)) for body in (b"1", b"2", b"3")
                )
                await in_thread(held.wait, LONG_S)
            others[0].cancel()
            await asyncio.wait([others[0]])
            go_on.set()
            assert (await first).ok
            assert (await others[1]).ok
            assert [message.body for message in store.scan()] == [b"1", b"3"]

    run(main())


@pytest.mark.parametrize("options", [WIDE, NARROW], ids=["here", "away"])
def test_a_put_within_an_awaited_one_waits(tmp_path: Path, options: dict[str, Any]) -> None:
    """What a put calls, here the clock, may put: it got PUT_OK before any sync."""
    within: list[bool] = []

    def clock() -> int:
        if store is not None and not within:
            within.append(False)
            result = store.put("T", b"within")
            assert result.ok
            within[0] = store.flushed_offset >= result.physical_offset + result.nbytes
        return START

    async def main() -> None:
        assert store is not None
        assert (await store.aput("T", b"x")).ok

    store: rocketstore.DefaultMessageStore | None = None
    with open_sync(tmp_path / "s", clock=clock, **options) as opened:
        assert opened.put("T", b"first").ok
        store = opened
        run(main())
        assert within == [True]


class Putting:
    """A message that puts another one when it is read, and notes whether that one was on disk."""

    def __init__(self, store: rocketstore.DefaultMessageStore) -> None:
        self.store = store
        self.within: list[bool] = []

    def put(self) -> None:
        result = self.store.put("T", b"within")
        end = result.physical_offset + result.nbytes
        self.within.append(result.ok and self.store.flushed_offset >= end)

    def __getattr__(self, name: str) -> Any:
        if name == "properties":
            self.put()
        return getattr(Message("T", b"outer"), name)


def test_a_put_made_by_the_arguments_of_an_awaited_one_waits(tmp_path: Path) -> None:
    """It got PUT_OK before any sync: the store took what its thread put then for the awaited put
    itself. Keys may be an iterator; a message in ``aput_many`` may be any object."""
    with open_sync(tmp_path / "s", **WIDE) as store:
        message = Putting(store)

        def keys() -> Iterator[str]:
            message.put()
            yield "key"

        async def main() -> None:
            assert (await store.aput("T", b"x", keys=keys())).ok
            assert (await store.aput_many([message])).ok

        run(main())
        assert message.within == [True, True]
        assert len(list(store.scan())) == 4
