"""The ledger of both bodies: the same records, results and table, whichever way they take."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.errors import ReentrantCallError, TransactionError, TransactionStateError
from rocketstore.status import PutMessageStatus, TransactionState
from rocketstore.transaction_records import OWN_TOPICS, RecordMaker
from support.appenders import FIRST_CLOCK, Log, facts, outcome
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

VERSIONS = ("4.9.8", "5.0.0", "5.1.4", "5.3.3", "5.5.0")
GOOD: dict[str, Any] = {"group": "billing", "unique_key": "KEY-1"}


class FailingLog(Log):
    """A log whose segments may not be made: ``fails`` is called before one is."""

    fails: Callable[[int], None] | None = None

    def roll(self, needed_nbytes: int) -> None:
        if self.fails is not None:
            self.fails(needed_nbytes)
        super().roll(needed_nbytes)


class Table:
    """A ledger over a log in memory."""

    def __init__(self, kernels: Bodies, **options: Any) -> None:
        self.kernels = kernels
        version = options.setdefault("broker_version", "5.3.3")
        wait = options.get("wait")
        # A body may ask the clock once for both records of a decision.
        options.setdefault("clock", lambda: FIRST_CLOCK)
        self.log = FailingLog(kernels, **options)
        self.ledger = kernels.transactions.Ledger(
            self.log.appender,
            kind=kernels.transactions.Transaction,
            read=lambda offset, nbytes: self.log.bytes[offset : offset + nbytes],
            wait=wait,
            unique_key_maker=lambda: "MADE",
            broker_version=version,
        )

    @property
    def state(self) -> Any:
        columns = {name: list(column) for name, column in self.ledger.columns().items()}
        return self.log.state[:2], columns, self.ledger.groups, self.ledger.owed, len(self.ledger)


class Tables:
    """The same under both bodies."""

    def __init__(self, **options: Any) -> None:
        self.both = (Table(NATIVE, **options), Table(REFERENCE, **options))
        self.begun: list[tuple[Any, Any]] = []

    def same(self, *calls: Any) -> tuple[Any, ...]:
        outcomes = [outcome(call) for call in calls]
        assert outcomes[0] == outcomes[1]
        assert self.both[0].state == self.both[1].state
        return outcomes[0]

    def begin(self, topic: Any = "Orders", body: Any = b"body", **options: Any) -> Any:
        made: list[Any] = []

        def call(table: Table) -> Any:
            made.append(table.ledger.begin(topic, body, **{**GOOD, **options}))
            return facts(made[-1].result), made[-1].key, made[-1].offset, made[-1].known

        found = self.same(*(lambda table=table: call(table) for table in self.both))
        if found[0] == "returned":
            self.begun.append((made[0], made[1]))
        return found

    def decide(self, number: int, name: str) -> Any:
        def call(one: Any) -> Any:
            return facts(getattr(one, name)()), one.known[0], facts(one.known[1])

        return self.same(*(lambda one=one: call(one) for one in self.begun[number]))


@pytest.mark.parametrize("version", VERSIONS)
def test_both_bodies_store_the_same(version: str) -> None:
    tables = Tables(broker_version=version, segment_nbytes=1 << 16)
    tables.begin()
    tables.begin("Orders", b"", queue_id=7, tags="a", keys=["k1", "k2"], flag=5, sys_flag=0x4 | 0x1)
    tables.begin(properties={"n": "1", "WAIT": "true", "CLUSTER": "c", "MSG_REGION": "r"})
    tables.begin(wait_store_msg_ok=False, born_timestamp=77, born_host="[::1]:5", tags="t")
    tables.begin(store_host="[2001:db8::1]:1", unique_key=None, properties={"x": ""})
    tables.begin(
        properties={
            "na\N{GREEK SMALL LETTER ALPHA}": "\N{SNOWMAN}",
            "CHECK_IMMUNITY_TIME_IN_SECONDS": "9",
        }
    )
    tables.begin("%RETRY%g", bytearray(b"abc"), group="other", unique_key=True)
    tables.begin(properties={"TRANSACTION_CHECK_TIMES": "3", "PGROUP": "x", "REAL_QID": "9"})
    for number in range(8):
        assert tables.decide(number, "commit" if number % 3 else "rollback")[0] == "returned"
    assert len(tables.both[0].ledger) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"group": ""},
        {"group": 5},
        {"group": "a\x01"},
        {"delay_level": 1},
        {"delay_level": "1"},
        {"properties": {"DELAY": "3"}},
        {"properties": {"DELAY": "0"}},
        {"properties": {"DELAY": "x"}},
        {"properties": {"TIMER_DELAY_MS": "3"}},
        {"properties": {"a": 1}},
        {"properties": [("a", "b")]},
        {"properties": {"UNIQ_KEY": "k"}},
        {"properties": {"UNIQ_KEY": "k"}, "unique_key": True},
        {"properties": {"a": "b" * 32700}},
        {"properties": {f"name{i}": "v" for i in range(100)}},
        {"topic": "a b"},
        {"topic": "t" * 128},
        {"topic": "%RETRY%" + "t" * 130},
        {"topic": ""},
        {"queue_id": -1},
        {"queue_id": True},
        {"sys_flag": 1 << 31},
        {"keys": ["a b"]},
        {"body": "text"},
        {"body": b"x" * 5_000_000},
        {"born_host": "nowhere"},
    ],
)
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_both_bodies_refuse_the_same(version: str, options: dict[str, Any]) -> None:
    tables = Tables(broker_version=version, segment_nbytes=1 << 16)
    given = dict(options)
    found = tables.begin(given.pop("topic", "Orders"), given.pop("body", b"b"), **given)
    if found[0] == "returned":
        assert tables.decide(0, "commit")[0] == "returned"


@pytest.mark.parametrize(
    "options",
    [
        {"append_property_crc": True},
        {"segment_nbytes": 1024},
        {"segment_nbytes": 2048, "extent_nbytes": 256},
    ],
)
def test_many_over_many_segments(options: dict[str, Any]) -> None:
    """Also committed later than their half messages' segments were left."""
    chance = random.Random(5)
    tables = Tables(**{"segment_nbytes": 4096, **options})
    left: list[int] = []
    for number in range(60):
        tables.begin(body=bytes(chance.randrange(120)), unique_key=f"K{number}")
        left.append(number)
        while left and chance.random() < 0.45:
            one = left.pop(chance.randrange(len(left)))
            tables.decide(one, chance.choice(["commit", "rollback"]))
    for one in left:
        tables.decide(one, "commit")
    assert len(tables.both[0].ledger) == len(tables.both[1].ledger) == 0
    assert len(tables.both[0].log.segments) > (1 if "segment_nbytes" in options else 0)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
def test_the_plain_way_asks_no_rules(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("the rules were asked")

    for name in ("put_half", "put_final", "put_op"):
        monkeypatch.setattr(RecordMaker, name, never)
    table = Table(NATIVE, broker_version=version, segment_nbytes=1 << 16)
    first = table.ledger.begin("Orders", b"1", group="g", tags="a", keys="k", unique_key="u")
    second = table.ledger.begin("Orders", b"2", group="g", properties={"a": "b"}, unique_key="v")
    assert first.commit().appended
    second.rollback()
    assert len(table.ledger) == 0


def test_a_decision_made_again_and_the_other_way(kernels: Bodies) -> None:
    table = Table(kernels)
    one = table.ledger.begin("Orders", b"1", **GOOD)
    outcome = one.commit()
    end = table.log.appender.write_offset
    assert one.commit() is outcome
    with pytest.raises(TransactionStateError, match="COMMIT"):
        one.rollback()
    other = table.ledger.begin("Orders", b"2", **GOOD)
    other.rollback()
    other.rollback()
    with pytest.raises(TransactionStateError, match="ROLLBACK"):
        other.commit()
    assert end < table.log.appender.write_offset
    assert table.ledger.owed == []


def test_a_transaction_that_another_object_decided_resolves(kernels: Bodies) -> None:
    table = Table(kernels)
    kind = kernels.transactions.Transaction
    resolved = []

    class Known(kind):  # type: ignore[misc,valid-type]
        def _resolve(self) -> None:
            resolved.append(self.key)
            self.settle(TransactionState.COMMIT, None, 1)

    one = table.ledger.begin("Orders", b"1", **GOOD)
    one.commit()
    assert Known(table.ledger, one.key, one.offset).commit() is None
    with pytest.raises(TransactionStateError):
        Known(table.ledger, one.key, one.offset).rollback()
    assert resolved == [0, 0]
    with pytest.raises(TransactionError, match="not known"):
        kind(table.ledger, one.key, one.offset).commit()


def test_a_refused_commit_leaves_it_undecided(kernels: Bodies) -> None:
    table = Table(kernels)
    one = table.ledger.begin("Orders", b"1", **GOOD)
    table.log.appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    assert one.commit().status == PutMessageStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(TransactionError, match="refused"):
        one.rollback()
    with pytest.raises(TransactionError, match="SERVICE_NOT_AVAILABLE"):
        table.ledger.begin("Orders", b"2", **GOOD)
    assert table.ledger.has(one.key)
    assert table.ledger.owed == []
    table.log.appender.refuse(None)
    assert one.commit().ok


def test_a_commit_without_room_for_its_op_is_committed(kernels: Bodies) -> None:
    """The op message is owed, and comes with the next one."""
    table = Table(kernels, segment_nbytes=2048)
    one = table.ledger.begin("Orders", b"1" * 300, **GOOD)
    log = table.log
    final = one.result.nbytes - len(formats.TOPIC_HALF) + len("Orders")
    empty = log.appender.put("T", b"").nbytes
    left = 2048 - log.appender.write_position
    log.appender.put("T", b"x" * (left - empty - final - 20))

    def full(needed: int) -> None:
        raise OSError("the disk is full")

    log.fails = full
    first = one.commit()
    assert first.appended
    assert not table.ledger.has(one.key)
    assert table.ledger.owed == [0]
    log.fails = None
    two = table.ledger.begin("Orders", b"2", **GOOD)
    two.rollback()
    assert table.ledger.owed == []
    assert log.bytes.count(b"1,0,") == 1


def test_a_rollback_without_room_for_its_op_is_undecided(kernels: Bodies) -> None:
    table = Table(kernels, segment_nbytes=1024)
    one = table.ledger.begin("Orders", b"1" * 300, **GOOD)
    log = table.log
    empty = log.appender.put("T", b"").nbytes
    log.appender.put("T", b"x" * (1024 - log.appender.write_position - empty - 20))

    def full(needed: int) -> None:
        raise OSError("the disk is full")

    log.fails = full
    with pytest.raises(OSError, match="full"):
        one.rollback()
    assert table.ledger.has(one.key)
    assert table.ledger.owed == []
    log.fails = None
    assert one.commit().ok


def test_the_table(kernels: Bodies) -> None:
    ledger = Table(kernels).ledger
    numbers = [ledger.group_number(name) for name in ("a", "b", "a")]
    assert (numbers, ledger.groups) == ([0, 1, 0], ["a", "b"])
    assert ledger.min_queue_offset == -1
    keys = list(range(0, 400, 2))
    random.Random(3).shuffle(keys)
    for key in keys:
        ledger.add(key, key + 1, 10 * key, 100, 5, 6, 1, 7000, key % 2)
    assert len(ledger) == 200
    assert list(ledger.columns()["key"]) == sorted(keys)
    assert ledger.row(4) == (4, 5, 40, 100, 5, 6, 1, 7000, 0, 0)
    assert (ledger.row(5), ledger.has(4), ledger.has(5)) == (None, True, False)
    assert (ledger.key_of(4), ledger.key_of(5), ledger.key_of(3)) == (4, 4, 2)
    assert ledger.min_queue_offset == 1
    ledger.note_asked(4)
    assert ledger.row(4)[-1] == 1
    for key in sorted(keys)[:150]:
        assert ledger.remove(key)
        assert not ledger.remove(key)
    assert len(ledger) == 50
    assert list(ledger.columns()["key"]) == sorted(keys)[150:]
    assert ledger.key_of(4) is None
    ledger.add(300, 9, 9, 9, 9, 9, 9, -1, 0)
    assert len(ledger) == 50
    assert ledger.row(300)[7] == -1
    assert ledger.min_queue_offset == 9


def test_op_messages_are_split(kernels: Bodies) -> None:
    table = Table(kernels)
    ledger = kernels.transactions.Ledger(
        table.log.appender, kind=object, read=lambda *_: b"", op_nbytes=8
    )
    ledger.owe([1, 2, 3, 444444, 55555555555, 6])
    ledger.disown(2)
    ledger.write_ops(None)
    assert ledger.owed == []
    bodies = []
    at = 0
    while at < table.log.appender.write_offset:
        one = kernels.message.StoredMessage(table.log.bytes, at, 0, 4096)
        bodies.append(one.body)
        at += one.store_size
    assert bodies == [b"1,3,", b"444444,", b"55555555555,", b"6,"]


def test_a_decision_inside_its_own_is_refused(kernels: Bodies) -> None:
    """As a signal handler would make it, which runs while room is made."""
    errors = []
    table = Table(kernels, segment_nbytes=1024)
    one = table.ledger.begin("Orders", b"1" * 400, **GOOD)

    def inner(needed: int) -> None:
        with pytest.raises(ReentrantCallError):
            one.rollback()
        errors.append(needed)

    table.log.fails = inner
    assert one.commit().ok
    assert len(errors) == 1
    assert one.known[0] == TransactionState.COMMIT


def test_immunity_is_read_as_seconds(kernels: Bodies) -> None:
    read = kernels.transactions.immunity_ms
    assert [read(text) for text in ("0", "9", "+3", "-1", "x", "", None, "9" * 30)] == [
        *(0, 9000, 3000, -1, -1, -1, -1, -1)
    ]


def test_half_message_names_no_topic(kernels: Bodies) -> None:
    table = Table(kernels)
    put = table.log.appender.put(formats.TOPIC_HALF, b"x", properties={"PGROUP": "g"})
    table.ledger.add(0, 0, put.physical_offset, put.nbytes, 0, 0, 0, -1, 0)
    one = kernels.transactions.Transaction(table.ledger, 0, put.physical_offset)
    with pytest.raises(TransactionError, match="names no topic"):
        one.commit()
    one.rollback()


GOOD_HALF = {"PGROUP": "g", "REAL_TOPIC": "Orders", "REAL_QID": "0"}


# --- faults -------------------------------------------------------------------------------------


def at(table: Table, put: Any, number: int = 0) -> Any:
    """The transaction of a half message that was put by hand."""
    table.ledger.add(number, number, put.physical_offset, put.nbytes, 0, 0, 0, -1, 0)
    return table.kernels.transactions.Transaction(table.ledger, number, put.physical_offset)


@pytest.mark.parametrize(
    "number",
    ["9999999999", "2147483648", "-1", "1.0", "", "9" * 6000, "\N{SUPERSCRIPT TWO}"],
    ids=range(7),
)
def test_half_message_names_no_queue(number: str, kernels: Bodies) -> None:
    table = Table(kernels, segment_nbytes=1 << 16)
    properties = {"PGROUP": "g", "REAL_TOPIC": "Orders", "REAL_QID": number}
    one = at(table, table.log.appender.put(formats.TOPIC_HALF, b"x", properties=properties))
    with pytest.raises(TransactionError, match="names no topic and queue"):
        one.commit()
    assert table.ledger.has(0)
    one.rollback()


@pytest.mark.parametrize("topic", OWN_TOPICS)
def test_a_topic_of_the_store_takes_no_transaction(topic: str, kernels: Bodies) -> None:
    """Its record would begin, decide, discard or delay another one."""
    table = Table(kernels)
    end = table.log.appender.write_offset
    with pytest.raises(TransactionError, match="own topic"):
        table.ledger.begin(topic, b"1", **GOOD)
    assert table.log.appender.write_offset == end
    properties = {"PGROUP": "g", "REAL_TOPIC": topic, "REAL_QID": "0"}
    one = at(table, table.log.appender.put(formats.TOPIC_HALF, b"x", properties=properties))
    with pytest.raises(TransactionError, match="own topic"):
        one.commit()
    assert table.ledger.begin(topic + "x", b"1", **GOOD).commit().ok


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("place", ["body", "length", "magic"])
def test_a_damaged_half_message_is_not_committed(place: str, is_own: bool, kernels: Bodies) -> None:
    table = Table(kernels)
    if is_own:
        one = table.ledger.begin("Orders", b"0123456789", **GOOD)
        start = one.result.physical_offset
    else:
        properties = {"PGROUP": "g", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
        put = table.log.appender.put(formats.TOPIC_HALF, b"0123456789", properties=properties)
        one, start = at(table, put), put.physical_offset
    segment = table.log.segments[0]
    position = {"body": table.log.bytes.index(b"0123456789"), "length": start, "magic": start + 4}
    memoryview(segment)[position[place]] ^= 0x20
    end = table.log.appender.write_offset
    with pytest.raises(TransactionError, match=f"at log offset {start} is damaged"):
        one.commit()
    assert table.log.appender.write_offset == end
    assert table.ledger.has(one.key)
    one.rollback()


@pytest.mark.parametrize("call", ["commit", "copy", "discarded"])
def test_a_transaction_that_is_removed_while_it_is_decided(call: str, kernels: Bodies) -> None:
    """While its half message is read, another thread may run. No signal."""
    table = Table(kernels, segment_nbytes=1024)
    put = table.log.appender.put(formats.TOPIC_HALF, b"1" * 300, properties=GOOD_HALF)
    table.log.appender.put("T", b"x" * 700)  # the half message's segment is left
    content = table.log.bytes

    def read(offset: int, nbytes: int) -> bytes:
        assert ledger.remove(0)
        return content[offset : offset + nbytes]

    kind = kernels.transactions.Transaction
    ledger = kernels.transactions.Ledger(table.log.appender, kind=kind, read=read)
    ledger.add(0, 0, put.physical_offset, put.nbytes, 0, 0, 0, -1, 0)
    calls = {
        "commit": kind(ledger, 0, put.physical_offset).commit,
        "copy": lambda: ledger.put_copy(0, 1, None),
        "discarded": lambda: ledger.put_discarded(0, None),
    }
    end = table.log.appender.write_offset
    with pytest.raises(TransactionError, match="removed"):
        calls[call]()
    assert table.log.appender.write_offset == end
    assert (len(ledger), ledger.owed) == (0, [])


def test_forgetting_waits_for_a_decision(kernels: Bodies) -> None:
    table = Table(kernels, segment_nbytes=1024)
    one = table.ledger.begin("Orders", b"1" * 400, **GOOD)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(table.ledger.forget(0)))

    def other(needed: int) -> None:
        thread.start()
        thread.join(0.05)
        answers.append(table.ledger.has(0))

    table.log.fails = other
    assert one.commit().ok
    thread.join(20)
    assert answers == [True, False]
    assert not table.ledger.forget(0)
    table.ledger.add(3, 3, 0, 100, 0, 0, 0, -1, 0)
    assert table.ledger.forget(3)
    assert not table.ledger.has(3)


def test_a_time_out_of_the_disk_is_told_to_later_calls_too(kernels: Bodies) -> None:
    statuses = [PutMessageStatus.FLUSH_DISK_TIMEOUT] * 2
    table = Table(kernels, wait=lambda end: statuses.pop(0) if statuses else 0)
    one = table.ledger.begin("Orders", b"1", **GOOD, wait_store_msg_ok=False)
    assert one.commit().status == PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert one.commit().status == PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert one.commit().status == PutMessageStatus.PUT_OK
    outcome_of, end = one.known[1], table.log.appender.write_offset
    assert outcome_of.status == PutMessageStatus.PUT_OK

    class Found(kernels.transactions.Transaction):  # type: ignore[name-defined,misc]
        def _resolve(self) -> None:
            self.settle(TransactionState.COMMIT, outcome_of, end)

    statuses.append(PutMessageStatus.FLUSH_DISK_TIMEOUT)
    found = Found(table.ledger, one.key, one.offset)
    assert found.commit().status == PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert found.commit().status == PutMessageStatus.PUT_OK


class Batch:
    """Another thread writes what is owed, after this one was refused."""

    offsets: tuple[int, ...] = ()

    def __init__(self, table: Table, *, error: BaseException | None) -> None:
        self.table, self.error = table, error

    def join(self, queue_offset: int) -> int:
        ledger, appender = self.table.ledger, self.table.log.appender
        ledger.owe([queue_offset])
        appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        assert ledger.write_ops(None) == 0
        appender.refuse(None)
        thread = threading.Thread(target=ledger.write_ops, args=(None,))
        thread.start()
        thread.join()
        if self.error is not None:
            raise self.error
        return 0

    def write(self) -> None:
        """Nothing is left."""


@pytest.mark.parametrize("error", [None, OSError("full"), KeyboardInterrupt()])
def test_an_op_that_another_thread_wrote_is_a_decision(
    error: BaseException | None, kernels: Bodies
) -> None:
    waited: list[int] = []

    def wait(end: int) -> int:
        waited.append(end)
        if len(waited) == 1:
            one.rollback() if error is None else outcome_or_interrupt(one.rollback)
        return PutMessageStatus.PUT_OK

    table = Table(kernels, wait=wait)
    one = table.ledger.begin("Orders", b"1", **GOOD, wait_store_msg_ok=False)
    two = table.ledger.begin("Orders", b"2", **GOOD, wait_store_msg_ok=False)
    table.ledger.batch = Batch(table, error=error)
    two.commit()  # while it waits for the disk, the other one is decided
    assert not table.ledger.has(0)
    assert table.ledger.owed == []
    assert table.log.bytes.count(b"0,") == 1
    if not isinstance(error, KeyboardInterrupt):
        assert one.known[0] == TransactionState.ROLLBACK
        assert waited[1] == table.log.appender.write_offset


def outcome_or_interrupt(call: Callable[[], Any]) -> None:
    try:
        call()
    except (OSError, KeyboardInterrupt):
        return


def test_of_two_threads_that_write_op_messages_one_waits(kernels: Bodies) -> None:
    """What it would take back is on its way to the log else."""
    table = Table(kernels, segment_nbytes=1024)
    table.log.appender.put("T", b"x" * 700)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(table.ledger.disown(7)))

    def other(needed: int) -> None:
        thread.start()
        thread.join(0.05)
        answers.append(thread.is_alive())

    table.ledger.owe([7])
    table.log.appender.put("T", b"x" * (1024 - table.log.appender.write_position - 200))
    table.log.fails = other
    assert table.ledger.write_ops(None) > 0
    thread.join(20)
    assert answers == [True, False]


def test_a_copy_without_a_key_names_the_first(kernels: Bodies) -> None:
    table = Table(kernels)
    bodies = []
    for options in ({}, {"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}}):
        one = table.ledger.begin("Orders", b"1", group="g", unique_key=None, **options)
        for count in (1, 2):
            put = table.ledger.put_copy(one.key, count, None)
            content = table.log.bytes[put.physical_offset : put.physical_offset + put.nbytes]
            bodies.append(kernels.message.StoredMessage(content, 0, 0, len(content)).properties)
    firsts = [one.get("TRAN_PREPARED_QUEUE_OFFSET") for one in bodies]
    assert firsts == ["0", "0", None, None]
    assert [one["TRANSACTION_CHECK_TIMES"] for one in bodies] == ["1", "2", "1", "2"]


def test_every_record_rings_the_bell_of_the_log(kernels: Bodies) -> None:
    """Reads that wait for a half, or for the message of a decision, are woken by it."""
    table = Table(kernels)
    table.log.appender.bell = bell = threading.Lock()
    bell.acquire()
    started = table.ledger.begin("Orders", b"body", **GOOD)
    assert not bell.locked()
    bell.acquire()
    started.commit()
    assert not bell.locked()
