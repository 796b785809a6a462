"""Transactions of a store: begun, decided once, found again."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import (
    ForkedStoreError,
    StoreClosedError,
    TransactionError,
    TransactionNotFoundError,
    TransactionState,
    TransactionStateError,
    formats,
)

OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "broker_version": "5.3.3"}
COMMIT = formats.SYS_FLAG_TRANSACTION_COMMIT


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with rocketstore.open(tmp_path, "a", flush_disk_type=request.param, **OPTIONS) as opened:
        yield opened


def commits(store: Any) -> list[Any]:
    store.wait_dispatched()
    mask = formats.SYS_FLAG_TRANSACTION_MASK
    return [one for one in store.scan() if one.sys_flag & mask == COMMIT]


def test_a_committed_message_is_on_its_topic(store: Any) -> None:
    one = store.begin(
        "Orders", b"42", group="billing", queue_id=3, tags="paid", keys=["a", "b"], flag=7
    )
    assert one.state == TransactionState.UNKNOWN
    assert (one.group, one.topic, one.queue_id, one.checks) == ("billing", "Orders", 3, 0)
    assert store.topics() in ([], [formats.TOPIC_HALF])
    outcome = one.commit()
    store.wait_dispatched()
    (message,) = store.get_message("g", "Orders", 3, 0).messages
    assert (message.body, message.tags, message.keys, message.flag) == (b"42", "paid", "a b", 7)
    assert message.prepared_transaction_offset == one.offset == one.message.physical_offset
    assert (message.physical_offset, message.queue_offset) == (outcome.physical_offset, 0)
    assert message.unique_key == one.transaction_id
    assert message.born_timestamp == one.message.born_timestamp
    assert one.outcome == outcome
    assert one.result.physical_offset == one.offset


def test_d_59_a_transaction_is_decided_once(store: Any) -> None:
    """RocketMQ commits again, also after a rollback."""
    one = store.begin("Orders", b"1", group="g")
    first = one.commit()
    assert one.commit() == first
    again = store.transaction(one.transaction_id)
    assert again.commit() == first
    assert store.transaction(one.offset).outcome == first
    with pytest.raises(TransactionStateError, match="COMMIT"):
        again.rollback()
    other = store.begin("Orders", b"2", group="g")
    other.rollback()
    other.rollback()
    with pytest.raises(TransactionStateError, match="ROLLBACK"):
        store.transaction(other.transaction_id).commit()
    assert [one.body for one in commits(store)] == [b"1"]


def test_of_many_threads_one_decides(store: Any) -> None:
    begun = [store.begin("Orders", b"%d" % number, group="g") for number in range(20)]
    done: list[list[str]] = [[] for _ in begun]

    def decide(commit: bool) -> None:
        for number, one in enumerate(begun):
            try:
                handle = store.transaction(one.offset) if number % 2 else one
                handle.commit() if commit else handle.rollback()
                done[number].append("commit" if commit else "rollback")
            except TransactionStateError:
                done[number].append("refused")

    threads = [threading.Thread(target=decide, args=(at % 2 == 0,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = [one.body for one in commits(store)]
    assert len(bodies) == len(set(bodies))
    for number, outcomes in enumerate(done):
        assert outcomes.count("refused") == 2
        assert (b"%d" % number in bodies) == ("commit" in outcomes)
    assert not list(store.transactions())


def test_the_block_decides(store: Any) -> None:
    with store.begin("Orders", b"good", group="g") as one:
        pass
    assert one.state == TransactionState.COMMIT
    with pytest.raises(KeyError), store.begin("Orders", b"bad", group="g") as two:
        raise KeyError("x")
    assert two.state == TransactionState.ROLLBACK
    with store.begin("Orders", b"own", group="g") as three:
        three.rollback()
    assert three.state == TransactionState.ROLLBACK
    assert three.outcome is None
    four = store.begin("Orders", b"refused", group="g")
    with pytest.raises(TransactionError, match="SERVICE_NOT_AVAILABLE"), four:
        store.reader.log.appender.refuse(4)
    store.reader.log.appender.refuse(None)
    assert four.state == TransactionState.UNKNOWN
    assert [one.body for one in commits(store)] == [b"good"]


def test_on_an_event_loop(store: Any) -> None:
    async def work() -> None:
        one = await store.abegin("Orders", b"1", group="g")
        assert (await one.acommit()).ok
        assert await one.acommit() == one.commit()
        async with await store.abegin("Orders", b"2", group="g", tags="t"):
            pass
        with pytest.raises(KeyError):
            async with await store.abegin("Orders", b"3", group="g"):
                raise KeyError("x")
        begun = await asyncio.gather(
            *(store.abegin("Orders", b"m%d" % at, group="g") for at in range(50))
        )
        outcomes = await asyncio.gather(*(one.acommit() for one in begun))
        assert all(one.ok for one in outcomes)
        last = store.begin("Orders", b"4", group="g")
        await last.arollback()
        with pytest.raises(TransactionStateError):
            await last.acommit()

    asyncio.run(work())
    assert len(commits(store)) == 52
    assert not list(store.transactions())


def test_what_is_undecided_stays_so_after_a_restart(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        begun = [store.begin(f"T{at % 2}", b"%d" % at, group=f"g{at % 3}") for at in range(9)]
        begun[0].commit()
        begun[4].rollback()
        left = [one.transaction_id for one in begun if one.state == TransactionState.UNKNOWN]
        offsets = [one.offset for one in begun]
        ids = [one.message.msg_id for one in begun]
    with pytest.raises(StoreClosedError):
        begun[1].commit()
    with rocketstore.open(tmp_path, "r", **OPTIONS) as store:
        assert [one.transaction_id for one in store.transactions()] == left
        assert len(list(store.transactions(group="g1"))) == 2
        assert len(list(store.transactions(topic="T1", group="g1"))) == 2
        states = [one.state.name for one in store.transactions(state=None)]
        assert states == ["COMMIT", *["UNKNOWN"] * 3, "ROLLBACK", *["UNKNOWN"] * 4]
        with pytest.raises(io.UnsupportedOperation):
            store.begin("T", b"", group="g")
        with pytest.raises(io.UnsupportedOperation):
            next(store.transactions()).commit()
        with pytest.raises(io.UnsupportedOperation):
            store.transaction_check(lambda message: None)
    with rocketstore.open(tmp_path, "r+", **OPTIONS) as store:
        for reference in (left[0], offsets[2], ids[3]):
            store.transaction(reference).commit()
        assert store.transaction(offsets[0]).state == TransactionState.COMMIT
        assert store.transaction(ids[4]).state == TransactionState.ROLLBACK
        assert sorted(one.body for one in commits(store)) == [b"0", b"1", b"2", b"3"]
        assert [one.transaction_id for one in store.transactions()] == left[3:]
        (found,) = store.transactions(state=TransactionState.ROLLBACK)
        assert found.transaction_id == begun[4].result.msg_id or found.state.name == "ROLLBACK"


@pytest.mark.parametrize("reference", [10**6, "nothing", "7F00000100002A9F0000000000000FFF", -1])
def test_there_is_no_such_transaction(store: Any, reference: Any) -> None:
    put = store.put("Orders", b"plain", unique_key="plain")
    store.begin("Orders", b"1", group="g")
    with pytest.raises(TransactionNotFoundError):
        store.transaction(reference)
    with pytest.raises(LookupError):
        store.transaction(put.physical_offset)
    with pytest.raises(TypeError):
        store.transaction(1.5)


def test_d_76_a_delayed_transaction_is_refused(store: Any) -> None:
    """RocketMQ delays its half message, and drops it."""
    for given in ({"delay_level": 3}, {"properties": {"DELAY": "3"}}):
        with pytest.raises(ValueError, match="delayed"):
            store.begin("Orders", b"1", group="g", **given)
    assert store.max_physical_offset == 0


def test_d_51_a_property_without_a_value_is_kept(store: Any) -> None:
    one = store.begin("Orders", b"1", group="g", properties={"empty": "", "full": "x"})
    offset = one.commit().physical_offset
    assert b"empty\x01\x02" in store.look_message_by_offset(offset).properties_bytes
    store.transaction_check(lambda message: None, force=True)


def test_committed_messages_of_newer_versions_name_no_real_topic(tmp_path: Path) -> None:
    for version, keeps in (("5.3.3", True), ("5.4.0", False), ("5.5.0", False)):
        options = {**OPTIONS, "broker_version": version}
        with rocketstore.open(tmp_path / version, "a", **options) as store:
            offset = store.begin("Orders", b"1", group="g").commit().physical_offset
            names = store.look_message_by_offset(offset).properties.keys()
        assert ("REAL_TOPIC" in names, "REAL_QID" in names) == (keeps, keeps)
        assert {"TRAN_MSG", "PGROUP", "__transactionId__"} <= names


def test_a_transient_pool_holds_the_newest_half_messages(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", transient_store_pool_enable=True, **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")
        assert one.message.body == b"1"
        assert store.transaction(one.offset).commit().ok
        assert not list(store.transactions())


def test_nothing_of_it_is_imported_by_opening(tmp_path: Path) -> None:
    from support.own_process import run_python

    program = f"""
import sys, rocketstore
with rocketstore.open({str(tmp_path)!r}, "a") as store:
    store.put("T", b"x")
print([name for name in sys.modules if "rocketstore.transaction" in name])
"""
    assert run_python(program).stdout.strip() == "[]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
def test_a_forked_child_is_refused(store: Any) -> None:
    first, second = (store.begin("Orders", b"x", group="g") for _ in range(2))
    calls = (first.commit, second.rollback, lambda: store.begin("Orders", b"y", group="g"))
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except ForkedStoreError:
                refused += 1
        os._exit(0 if refused == len(calls) else 1)
    end = store.max_physical_offset
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.max_physical_offset == end
    assert first.commit().ok
    assert [one.body for one in commits(store)] == [b"x"]


def test_the_end_of_a_block_meets_a_decision_of_a_check(store: Any) -> None:
    """A block whose work is done must not seem to have committed what was rolled back."""
    answers = {b"c": TransactionState.COMMIT, b"r": TransactionState.ROLLBACK}

    def check(error: BaseException | None = None) -> None:
        store.transaction_check(lambda message: answers[message.body], force=True)
        if error is not None:
            raise error

    with store.begin("Orders", b"c", group="g") as one:
        check()
    assert one.outcome.ok
    assert one.known[1] == one.outcome
    with (
        pytest.raises(TransactionStateError, match="ROLLBACK"),
        store.begin("Orders", b"r", group="g") as two,
    ):
        check()
    assert two.state == TransactionState.ROLLBACK
    with pytest.raises(KeyError) as raised, store.begin("Orders", b"c", group="g"):
        check(KeyError("x"))
    assert raised.value.__notes__ == ["the transaction was decided before: COMMIT"]
    with pytest.raises(KeyError), store.begin("Orders", b"r", group="g"):
        check(KeyError("x"))
    with store.begin("Orders", b"r", group="g") as seen:
        check()
        assert seen.state == TransactionState.ROLLBACK

    async def work() -> None:
        with pytest.raises(TransactionStateError, match="ROLLBACK"):
            async with await store.abegin("Orders", b"r", group="g"):
                await asyncio.to_thread(check)
        with pytest.raises(KeyError) as raised:
            async with await store.abegin("Orders", b"c", group="g"):
                await asyncio.to_thread(check, KeyError("x"))
        assert raised.value.__notes__ == ["the transaction was decided before: COMMIT"]

    asyncio.run(work())


def test_a_time_out_of_the_disk_is_told_to_the_object_that_did_not_decide(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", flush_disk_type="SYNC_FLUSH", **OPTIONS) as store:
        waited = []
        with store.begin("Orders", b"1", group="g") as one:
            other = store.transaction(one.offset)
            other.commit(_wait=lambda end: 0)  # it waits still
            end = store.reader.log.appender.write_offset
            ledger = one.ledger
            status = rocketstore.PutMessageStatus.FLUSH_DISK_TIMEOUT

            class Waits:
                def __getattr__(self, name: str) -> Any:
                    return getattr(ledger, name)

                def wait_for(self, end: int, wait: Any) -> int:
                    waited.append(end)
                    return status

                def decide(self, *given: Any) -> Any:
                    return ledger.decide(*given)

            found = type(one)(Waits(), one.key, one.offset)
            assert found.commit().status == status
            assert waited == [end]
