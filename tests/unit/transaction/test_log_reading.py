"""What log and queues say of transactions after crashes, copies, and other versions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TransactionState, formats, kernels
from rocketstore.config_managers import ConsumerOffsetManager
from rocketstore.dialect import Dialect
from rocketstore.transaction.log_reading import half_of, identity_of
from rocketstore.transaction.progress import read_progress
from rocketstore.transaction_records import RecordMaker

COMMIT = TransactionState.COMMIT
OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "broker_version": "5.3.3"}


def maker(store: Any, version: str = "5.3.3") -> RecordMaker:
    """Puts records one by one, as a process that dies between them leaves them."""
    dialect = Dialect.for_version(version)
    return RecordMaker(store.reader.log.appender, dialect, kernels.message)


def undecided(root: Path, mode: Any = "r", **options: Any) -> list[bytes]:
    with rocketstore.open(root, mode, **{**OPTIONS, **options}) as store:
        return [one.message.body for one in store.transactions()]


def bodies(store: Any, topic: str) -> list[bytes]:
    store.wait_dispatched()
    return [one.body for one in store.scan() if one.topic == topic]


def test_d_60_a_commit_without_its_op_is_a_commit(tmp_path: Path) -> None:
    """RocketMQ loses op messages by a crash, asks about what it committed, and commits again."""
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")
        store.begin("Orders", b"2", group="g")
        maker(store).put_final(one.message)
    assert undecided(tmp_path) == [b"2"]
    with rocketstore.open(tmp_path, "r+", **OPTIONS) as store:
        assert [one.message.body for one in store.transactions()] == [b"2"]
        again = store.transaction(one.offset)
        assert again.state == TransactionState.COMMIT
        assert store.look_message_by_offset(again.commit().physical_offset).body == b"1"
        asked = []
        store.transaction_check(lambda message: asked.append(message.body), force=True)
        assert asked == [b"2"]
        assert bodies(store, "Orders") == [b"1"]
        assert bodies(store, formats.TOPIC_OP)[0] == b"0,"  # a broker must not ask either


def test_a_discard_without_its_op_is_a_discard(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")
        maker(store).put_discarded(one.message, None)
    assert undecided(tmp_path, "r+") == []
    with rocketstore.open(tmp_path, "r", **OPTIONS) as store:
        assert [one.state for one in store.transactions(state=None)] == [TransactionState.DISCARDED]


def test_of_copies_the_newest_counts(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")
        first = one.message.detach()
        for count in (1, 2):
            maker(store).put_copy(first, count, 0, None)
    for mode in ("r", "r+"):
        with rocketstore.open(tmp_path, mode, **OPTIONS) as store:
            (found,) = store.transactions()
            assert (found.checks, found.message.queue_offset) == (2, 2)
    with rocketstore.open(tmp_path, "r+", **OPTIONS) as store:
        outcome = store.transaction(first.physical_offset).commit()
        message = store.look_message_by_offset(outcome.physical_offset)
        assert message is not None
        assert message.prepared_transaction_offset != first.physical_offset
        assert bodies(store, "Orders") == [b"1"]
    assert undecided(tmp_path) == []


def test_a_late_decision_about_the_first_decides_its_copies(tmp_path: Path) -> None:
    """As RocketMQ makes it: the message names the first half message, the op comes too late."""
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")
        first = one.message.detach()
        maker(store).put_final(first)
        maker(store).put_copy(first, 1, 0, None)
    manager = ConsumerOffsetManager(tmp_path)
    manager.commit_offset(formats.GROUP_TRANSACTION, formats.TOPIC_HALF, 0, 1)
    manager.persist()
    assert undecided(tmp_path) == []
    with rocketstore.open(tmp_path, "r+", message_index_enable=False, **OPTIONS) as store:
        store.close()
    with rocketstore.open(tmp_path, "r", **OPTIONS) as store:
        assert store.transaction(first.physical_offset).state == TransactionState.COMMIT


@pytest.mark.parametrize("version", ["4.9.8", "5.0.0", "5.3.3"])
def test_d_77_op_messages_of_any_version_are_read(version: str, tmp_path: Path) -> None:
    """Up to 5.0 RocketMQ ignores the lists of later versions, and asks about decided messages."""
    options = {**OPTIONS, "broker_version": version}
    with rocketstore.open(tmp_path, "a", **options) as store:
        for number in range(6):
            store.begin("Orders", b"%d" % number, group="g")
        for given, written in (([0], "5.3.3"), ([1, 4], "5.3.3"), ([3], "4.9.8")):
            maker(store, written).put_op(given, None)
        store.put(formats.TOPIC_OP, b"x,,-7, 5,99", tags="d")
    assert undecided(tmp_path, broker_version=version) == [b"2", b"5"]
    with rocketstore.open(tmp_path, "r+", **options) as store:
        for one in store.transactions():
            one.rollback()
        ops = bodies(store, formats.TOPIC_OP)
    assert ops[-2:] == ([b"2,", b"5,"] if version == "5.3.3" else [b"2", b"5"])
    assert undecided(tmp_path, broker_version=version) == []


def test_progress_beyond_the_log_is_not_believed(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"1", group="g")
    manager = ConsumerOffsetManager(tmp_path)
    manager.commit_offset(formats.GROUP_TRANSACTION, formats.TOPIC_HALF, 0, 50)
    manager.persist()
    with rocketstore.open(tmp_path, "r+", **OPTIONS) as store:
        store.begin("Orders", b"2", group="g")
        assert [one.message.body for one in store.transactions()] == [b"1", b"2"]
    assert undecided(tmp_path) == [b"1", b"2"]


def test_without_an_index_the_log_is_read(tmp_path: Path) -> None:
    options = {**OPTIONS, "message_index_enable": False}
    with rocketstore.open(tmp_path, "a", **options) as store:
        one = store.begin("Orders", b"1", group="g")
        two = store.begin("Orders", b"2", group="g", unique_key=None)
        one.commit()
        two.commit()
        store.begin("Orders", b"3", group="g", unique_key="given")
        key = one.transaction_id
    with rocketstore.open(tmp_path, "r+", **options) as store:
        assert store.transaction(key).state == TransactionState.COMMIT
        assert store.transaction(two.offset).commit().appended
        assert store.transaction("given").commit().ok
        assert len(bodies(store, "Orders")) == 3


def test_the_log_is_read_past_a_corrupt_range(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")
        junk = store.put("Junk", b"x" * 200)
        one.commit()
        store.begin("Orders", b"2", group="g")
    (segment,) = (tmp_path / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(junk.physical_offset)
        file.write(b"\xff" * 64)
    assert undecided(tmp_path) == [b"2"]


def test_identity_is_that_of_a_message_and_its_copies(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        first, second = (
            store.begin("Orders", b"1", group="g", unique_key=key, born_timestamp=5)
            for key in ("a", "b")
        )
        half = first.message.detach()
        store.transaction_check(lambda message: None, force=True)
        assert half_of(first.message).identity == identity_of(half)
        assert half_of(second.message).identity != identity_of(half)
        assert (half_of(half).is_copy, half_of(first.message).is_copy) == (False, True)


def test_copies_whose_op_is_missing_are_named_when_the_store_is_opened(tmp_path: Path) -> None:
    """A process that died in a round left them; a broker would ask about both."""
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"silent", group="g")
        one = store.begin("Orders", b"1", group="g")
        for count in (1, 2):
            maker(store).put_copy(one.message.detach(), count, 1, None)
    assert undecided(tmp_path, "r+") == [b"silent", b"1"]
    with rocketstore.open(tmp_path, "r+", **OPTIONS) as store:
        assert bodies(store, formats.TOPIC_OP) == [b"1,2,"]
        assert [one.checks for one in store.transactions()] == [0, 2]
        assert bodies(store, formats.TOPIC_OP) == [b"1,2,"]


def test_a_copy_that_hangs_on_its_first_is_renewed(tmp_path: Path) -> None:
    """A broker takes a copy that is immune for decided, once an op message names its first."""
    properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"silent", group="g")
        one = store.begin("Orders", b"1", group="g", properties=properties)
        appender = store.reader.log.appender
        copy = {
            **one.message.properties,
            "TRANSACTION_CHECK_TIMES": "1",
            "TRAN_PREPARED_QUEUE_OFFSET": "1",
            "WAIT": "false",
        }
        half = one.message
        appender.put(
            formats.TOPIC_HALF,
            b"1",
            properties=copy,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
        )
    assert undecided(tmp_path) == [b"silent", b"1"]
    with rocketstore.open(tmp_path, "r+", **OPTIONS) as store:
        assert [one.message.body for one in store.transactions()] == [b"silent", b"1"]
        assert bodies(store, formats.TOPIC_OP) == [b"1,2,"]
        newest = [one.message for one in store.transactions()][1]
        assert newest.queue_offset == 3
        assert "TRAN_PREPARED_QUEUE_OFFSET" not in newest.properties
        assert newest.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert undecided(tmp_path, "r+") == [b"silent", b"1"]


@pytest.mark.parametrize("progress", [(50, 50), (50, 1), (1, 50), (2**62, 2**62), (3, 0)])
def test_progress_past_the_queues_hides_nothing(progress: tuple[int, int], tmp_path: Path) -> None:
    """A file from another time: undecided half messages are neither lost nor rolled back."""
    root = tmp_path / "store"
    with rocketstore.open(root, "a", **OPTIONS) as store:
        store.begin("Orders", b"0", group="g").commit()
        store.begin("Orders", b"1", group="g")
        store.begin("Orders", b"2", group="g").rollback()
    given = progress if progress[0] != 1 else (0, 50)
    group = formats.GROUP_TRANSACTION

    def write() -> None:
        manager = ConsumerOffsetManager(root)
        for topic, offset in zip((formats.TOPIC_HALF, formats.TOPIC_OP), given, strict=True):
            manager.commit_offset(group, topic, 0, offset)
        manager.persist()

    hidden = given == (3, 0)  # the end of the queue: nothing says that it is wrong
    write()
    with rocketstore.open(root, "r", **OPTIONS) as store:
        states = [one.state.name for one in store.transactions(state=None)]
        assert states == ["COMMIT", "ROLLBACK" if hidden else "UNKNOWN", "ROLLBACK"]
    write()
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        for number in range(60):  # the queue grows past the progress
            store.begin("Orders", b"x", group="g").commit()
            if number == 0:
                expected = given if max(given) <= 3 else (1, 1)
                assert read_progress(root) == expected
        assert [one.message.body for one in store.transactions()] == [b"1"] * (not hidden)
        shutil.copytree(root, tmp_path / "killed")
    assert undecided(tmp_path / "killed") == [b"1"] * (not hidden)


def test_progress_of_a_log_that_was_emptied(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.put("T", b"x")
    manager = ConsumerOffsetManager(tmp_path)
    for topic in (formats.TOPIC_HALF, formats.TOPIC_OP):
        manager.commit_offset(formats.GROUP_TRANSACTION, topic, 0, 2)
    manager.commit_offset("group", "Orders", 0, 7)
    manager.persist()
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"0", group="g")
        assert read_progress(tmp_path) == (0, 0)
        for _ in range(3):
            store.begin("Orders", b"x", group="g").commit()
        assert read_progress(tmp_path) == (0, 0)
    assert undecided(tmp_path) == [b"0"]
    manager = ConsumerOffsetManager(tmp_path)
    manager.load()
    assert manager.query_offset("group", "Orders", 0) == 7


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("immunity", [None, "0"])
def test_half_messages_without_a_key_are_told_apart(
    immunity: str | None, index: bool, tmp_path: Path
) -> None:
    """Equal ones, copied in several rounds; each is decided on its own."""
    options = {**OPTIONS, "message_index_enable": index, "transaction_check_max": 3}
    given: dict[str, Any] = {"group": "g", "unique_key": None, "born_timestamp": 5}
    if immunity is not None:
        given["properties"] = {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity}
    queues = range(5)
    with rocketstore.open(tmp_path, "a", **options) as store:
        begun = [store.begin("Orders", b"same", queue_id=queue, **given) for queue in queues]
        firsts = [one.offset for one in begun]
        for _ in range(2):
            store.transaction_check(lambda message: None)
        copies = [one.message.detach() for one in begun]
        assert [one.queue_id for one in store.transactions()] == [*queues]
    with rocketstore.open(tmp_path, "r", **options) as store:
        found = [(one.queue_id, one.checks) for one in store.transactions()]
        assert found == [(queue, 2) for queue in queues]
    with rocketstore.open(tmp_path, "r+", **options) as store:
        store.transaction(firsts[1]).commit()
        store.transaction(copies[2]).rollback()
        assert store.transaction(firsts[0]).queue_id == 0
    decided = ["UNKNOWN", "COMMIT", "ROLLBACK", "UNKNOWN", "UNKNOWN"]
    with rocketstore.open(tmp_path, "r+", **options) as store:
        assert [one.queue_id for one in store.transactions()] == [0, 3, 4]
        assert [store.transaction(one).state.name for one in firsts] == decided
        assert [store.transaction(one).state.name for one in copies] == decided
        states = {one.queue_id: one.state.name for one in store.transactions(state=None)}
        assert [states[queue] for queue in queues] == decided
        for _ in range(2):
            store.transaction_check(
                lambda message: COMMIT if message.properties["REAL_QID"] == "4" else None
            )
    decided = ["DISCARDED", "COMMIT", "ROLLBACK", "DISCARDED", "COMMIT"]
    with rocketstore.open(tmp_path, "r", **options) as store:
        assert list(store.transactions()) == []
        states = {one.queue_id: one.state.name for one in store.transactions(state=None)}
        assert [states[queue] for queue in queues] == decided
        assert [store.transaction(one).state.name for one in firsts] == decided
        stored = [one.queue_id for one in store.scan() if one.topic == "Orders"]
        assert stored == [1, 4]


@pytest.mark.parametrize("first", ["x", "-1", "9" * 30, "", "1", "7"])
def test_a_copy_that_names_another_half_message_is_its_own(first: str, tmp_path: Path) -> None:
    properties = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"0", group="g", unique_key=None)
        store.begin("Orders", b"1", group="g", unique_key=None)
        copy = {**properties, "TRAN_PREPARED_QUEUE_OFFSET": first, "TRANSACTION_CHECK_TIMES": "1"}
        store.put(formats.TOPIC_HALF, b"2", properties=copy)
    assert undecided(tmp_path) == undecided(tmp_path, "r+") == [b"0", b"1", b"2"]


def test_only_queue_0_of_the_half_topic_counts(tmp_path: Path) -> None:
    """A message of another queue has the same queue offset as a half message."""
    properties = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        one = store.begin("Orders", b"0", group="g", unique_key="key")
        put = store.put(
            formats.TOPIC_HALF, b"1", queue_id=1, properties=properties, unique_key="key"
        )
        store.wait_dispatched()
        other = store.look_message_by_offset(put.physical_offset)
        for reference in (put.physical_offset, other, put.msg_id):
            with pytest.raises(rocketstore.TransactionNotFoundError):
                store.transaction(reference)
        assert store.transaction("key").offset == one.offset


def test_a_message_of_another_store_names_no_transaction(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "other", "a", **OPTIONS) as other:
        foreign = other.begin("Orders", b"0", group="g").message.detach()
    with rocketstore.open(tmp_path / "own", "a", **OPTIONS) as store:
        one = store.begin("Orders", b"0", group="g")
        assert one.message.physical_offset == foreign.physical_offset
        with pytest.raises(rocketstore.TransactionNotFoundError):
            store.transaction(foreign)
        assert store.transaction(one.message.detach()).commit().ok
