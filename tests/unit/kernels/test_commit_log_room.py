"""The appender of both bodies: room in the log, switching off, waiting, and what puts answer."""

from __future__ import annotations

import os
import pickle
import struct
import threading
from pathlib import Path

import pytest

from rocketstore import formats
from rocketstore.errors import (
    ForkedStoreError,
    ServiceFailedError,
    StoreClosedError,
    StoreFullError,
)
from rocketstore.status import AppendMessageStatus, PutMessageStatus
from support.appenders import FIRST_CLOCK, Log, batch, message, stored
from support.kernel_bodies import NATIVE, Bodies

# --- Room ---------------------------------------------------------------------------------------


def test_extend_is_asked_ahead_of_every_store(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=300, extent_nbytes=100)
    for _ in range(3):
        log.appender.put("T", bytes(8))
    assert log.rolls == [100, 100]
    assert log.extends == [208]
    assert log.segments[0][200:208] == struct.pack(">ii", 100, formats.BLANK_MAGIC)


def test_no_room_is_an_unknown_error(kernels: Bodies) -> None:
    calls: list[int] = []
    appender = kernels.commit_log.Appender(roll=calls.append, extend=calls.append)
    result = appender.put("T", b"")
    assert (result.status, result.append_status) == (
        PutMessageStatus.UNKNOWN_ERROR,
        AppendMessageStatus.UNKNOWN_ERROR,
    )
    assert (calls, result.appended, appender.failed_times) == ([92, 92, 92], False, 1)


@pytest.mark.parametrize("step", ["roll", "extend"])
def test_a_full_disk_is_raised_and_the_next_put_tries_again(kernels: Bodies, step: str) -> None:
    log = Log(kernels, segment_nbytes=512, extent_nbytes=100)
    log.appender.put("T", b"")
    full = True

    def make_room(argument: int) -> None:
        if full:
            raise StoreFullError("no space")
        getattr(log, step)(argument)

    appender = kernels.commit_log.Appender(
        segment_nbytes=512, **{"roll": log.roll, "extend": log.extend, step: make_room}
    )
    log.appender = appender
    log.segments.clear()
    if step == "extend":
        assert appender.put("T", b"").ok
    with pytest.raises(StoreFullError):
        appender.put("T", bytes(50))
    with pytest.raises(StoreFullError):
        appender.put_many([message(body=bytes(50))])
    assert appender.failed_times == 2
    full = False
    assert appender.put("T", bytes(50)).ok


@pytest.mark.parametrize("step", ["roll", "extend"])
def test_what_cannot_make_room_may_answer_with_a_status(kernels: Bodies, step: str) -> None:
    log = Log(kernels, segment_nbytes=512, extent_nbytes=100)
    log.appender.put("T", b"")
    answer: PutMessageStatus | None = PutMessageStatus.CREATE_MAPPED_FILE_FAILED

    def make_room(argument: int) -> int | None:
        return answer if answer is not None else getattr(log, step)(argument)

    log.appender = kernels.commit_log.Appender(
        segment_nbytes=512, **{"roll": log.roll, "extend": log.extend, step: make_room}
    )
    log.segments.clear()
    if step == "extend":
        assert log.appender.put("T", b"").ok
    refused = log.appender.put("T", bytes(50))
    assert (refused.status, refused.append_status) == (answer, None)
    assert not refused.appended
    assert [one.status for one in log.appender.put_many([message(body=bytes(50))] * 2)] == [
        answer
    ] * 2
    assert log.appender.put_messages(batch(message(body=bytes(50)), message())).status == answer
    assert log.appender.failed_times == 4
    answer = None
    assert log.appender.put("T", bytes(50)).ok


def test_a_put_that_waits_before_a_roll_blocks_no_other(kernels: Bodies) -> None:
    """It waited with the lock that orders rolls, which the thread that it waited for needed."""
    log = Log(kernels, segment_nbytes=256)
    waited: list[bool] = []

    def before_roll() -> None:
        if threading.current_thread() is waiting:
            other.start()
            other.join(20)
            waited.append(not other.is_alive())

    log.appender = kernels.commit_log.Appender(
        segment_nbytes=256, roll=log.roll, extend=log.extend, before_roll=before_roll
    )
    log.segments.clear()
    other = threading.Thread(target=log.appender.put, args=("T", b"other"), daemon=True)
    waiting = threading.Thread(target=log.appender.put, args=("T", b"waits"), daemon=True)
    waiting.start()
    waiting.join(60)
    assert waited == [True]
    assert len(log.segments) == 1
    assert log.appender.put_times == 2


def test_attach_checks_the_segment(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=512)
    for error, arguments in (
        (ValueError, (bytes(512), 0, 0, 512)),
        (ValueError, (bytearray(511), 0, 0, 511)),
        (TypeError, (5, 0, 0, 512)),
        (ValueError, (bytearray(512), -1, 0, 512)),
        (ValueError, (bytearray(512), 2**63 - 512, 0, 512)),
        (ValueError, (bytearray(512), 0, 505, 512)),
        (ValueError, (bytearray(512), 0, 0, 513)),
        (TypeError, (bytearray(512), 0, True, 512)),
    ):
        with pytest.raises(error):
            log.appender.attach(*arguments)
    assert log.appender.write_offset == 0


def test_attach_goes_on_in_the_middle(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=512)
    segment = bytearray(512)
    log.appender.attach(segment, 5120, 100, 512)
    log.appender.set_next_queue_offset("T", 3, 41)
    assert (log.appender.write_offset, log.appender.base_offset) == (5220, 5120)
    result = log.appender.put("T", b"", 3)
    assert (result.physical_offset, result.queue_offset) == (5220, 41)
    assert not any(segment[:100])
    log.appender.remove_queue("T", 3)
    assert log.appender.put("T", b"", 3).queue_offset == 0


def test_a_released_segment_may_be_resized(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=512)
    log.appender.put("T", b"")
    with pytest.raises(BufferError):
        log.segments[0].append(0)
    log.appender.detach()
    log.segments[0].append(0)
    assert log.appender.put("T", b"").physical_offset == 512
    log.appender.close()
    log.segments[1].append(0)


def test_the_frontier_of_another_segment_is_ignored(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=512, extent_nbytes=100)
    log.appender.attach(bytearray(512), 512, 0, 0)
    log.appender.set_frontier(512, 0)
    log.appender.put("T", b"")
    assert log.extends == [100]
    log.appender.set_frontier(512, 512)
    log.appender.set_populated(512)
    log.appender.put("T", b"")
    assert log.extends == [100]


# --- Switching off ------------------------------------------------------------------------------


def test_refuse_answers_until_it_ends(kernels: Bodies) -> None:
    log = Log(kernels)
    log.appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    for result in (
        log.appender.put("T", b""),
        log.appender.put_messages(batch(message())),
        *log.appender.put_many([message(), message()]),
    ):
        assert (result.status.name, result.append_status) == ("SERVICE_NOT_AVAILABLE", None)
        assert (result.physical_offset, result.msg_id, result.appended) == (None, None, False)
    assert (log.appender.failed_times, log.segments) == (4, [])
    log.appender.refuse(None)
    assert log.appender.put("T", b"").ok
    with pytest.raises(ValueError, match="99"):
        log.appender.refuse(99)


def test_failure_is_final(kernels: Bodies) -> None:
    log = Log(kernels)
    cause = OSError("sync failed")
    log.appender.fail(cause)
    log.appender.fail(OSError("later"))
    with pytest.raises(ServiceFailedError, match="sync failed") as caught:
        log.appender.put("T", b"")
    assert caught.value.__cause__ is cause
    for call in (log.appender.put_message, log.appender.put_messages, log.appender.put_many):
        with pytest.raises(ServiceFailedError):
            call([])


def test_closed_is_closed(kernels: Bodies) -> None:
    log = Log(kernels)
    log.appender.put("T", b"")
    log.appender.close()
    log.appender.close()
    with pytest.raises(StoreClosedError):
        log.appender.put("T", b"")
    with pytest.raises(StoreClosedError):
        log.appender.attach(bytearray(4096), 0, 0, 0)
    assert log.appender.write_offset == 92


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_child_gets_an_error(kernels: Bodies) -> None:
    log = Log(kernels)
    log.appender.put("T", b"")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log.appender.put("T", b"")
        except ForkedStoreError:
            log.appender.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert log.appender.put("T", b"").physical_offset == 92


# --- Waiting ------------------------------------------------------------------------------------


def test_only_what_waits_is_waited_for(kernels: Bodies) -> None:
    ends: list[int] = []
    timeout = PutMessageStatus.FLUSH_DISK_TIMEOUT
    log = Log(kernels, wait=lambda end: ends.append(end) or timeout)
    result = log.appender.put("T", b"")
    assert (result.status, result.append_status) == (timeout, AppendMessageStatus.PUT_OK)
    assert (result.ok, result.appended, result.physical_offset) == (False, True, 0)
    assert log.appender.put("T", b"", wait_store_msg_ok=False).ok
    assert log.appender.put("T", b"", properties={"WAIT": "no"}).ok
    assert not log.appender.put("T", b"", properties={"WAIT": "True"}).ok
    quiet = message(properties={"WAIT": "false"})
    many = log.appender.put_many([message(), message(), quiet])
    assert [r.status.value for r in many] == [1, 1, 0]
    grouped = log.appender.put_messages(batch(message(), message()))
    assert grouped.status == timeout
    assert ends == [92, many[0].physical_offset, many[2].physical_offset, log.appender.write_offset]


def test_a_failed_wait_is_raised(kernels: Bodies) -> None:
    def wait(end_offset: int) -> int:
        raise ServiceFailedError("sync failed")

    log = Log(kernels, wait=wait)
    with pytest.raises(ServiceFailedError):
        log.appender.put("T", b"")
    assert log.appender.put_times == 1


def test_a_clock_must_give_milliseconds(kernels: Bodies) -> None:
    log = Log(kernels, clock=lambda: 1.5)
    with pytest.raises(TypeError, match="clock"):
        log.appender.put("T", b"")
    assert log.segments == []


def test_without_a_clock_the_systems_is_read(kernels: Bodies) -> None:
    log = Log(kernels, clock=None)
    assert log.appender.put("T", b"").store_timestamp > FIRST_CLOCK
    assert stored(log).born_timestamp == stored(log).store_timestamp


# --- Outcomes -----------------------------------------------------------------------------------


def test_results_are_values(kernels: Bodies) -> None:
    make = kernels.commit_log.PutMessageResult
    host = bytes([10, 9, 8, 7, 0, 0, 42, 159])
    result = make(0, 0, 5, 100, 7, 1234, [(host, 5), (host, 55)])
    assert result.msg_id == "0A09080700002A9F0000000000000005,0A09080700002A9F0000000000000037"
    assert result.message_count == 2
    assert result == make(0, 0, 5, 100, 7, 1234, [(host, 5), (host, 55)])
    assert hash(result) == hash(make(0, 0, 5, 100, 7, 1234, [(host, 5), (host, 55)]))
    assert result != make(0, 0, 5, 100, 7, 1234, [(host, 5), (host, 56)])
    assert result != 5
    with pytest.raises(AttributeError):
        result.status = 1
    with pytest.raises(ValueError, match="99"):
        make(99)
    assert repr(make(6)) == "PutMessageResult(MESSAGE_ILLEGAL)"
    assert "physical_offset=5" in repr(result)


def test_outcomes_are_pickled_whole(kernels: Bodies) -> None:
    make, many = kernels.commit_log.PutMessageResult, kernels.commit_log.PutManyResult
    host = bytes([10, 9, 8, 7, 0, 0, 42, 159])
    one = make(0, 0, 5, 100, 7, 1234, [(host, 5)])
    waited = make(1, 0, 5, 100, 7, 1234, [(bytes(range(20)), 5), (host, 55)])
    for value in (one, waited, make(6), many(), many([one, make(6)])):
        loaded = pickle.loads(pickle.dumps(value))
        assert (loaded, repr(loaded)) == (value, repr(value))
    assert many([pickle.loads(pickle.dumps(one))])[0].msg_id == one.msg_id


def test_outcomes_of_many_are_a_sequence(kernels: Bodies) -> None:
    many = kernels.commit_log.PutManyResult
    assert (len(many()), list(many()), many().ok) == (0, [], True)
    one = kernels.commit_log.PutMessageResult(6)
    assert list(many([one])) == [one]
    assert many([one]) == many([one])
    assert repr(many([one])) == "PutManyResult(1 messages, 0 appended)"


def test_a_file_shortened_under_the_appender_fails_it(tmp_path: Path) -> None:
    """Native only: the reference writes through Python's own mmap, which cannot be guarded."""
    page = 4096
    path = tmp_path / "segment"
    path.write_bytes(bytes(4 * page))
    log = Log(NATIVE, segment_nbytes=4 * page)
    with path.open("r+b") as file:
        mapping = NATIVE.mapping.Mapping(file.fileno(), 4 * page, True)
        log.appender.attach(mapping, 0, 2 * page, 4 * page)
        file.truncate(page)
        with pytest.raises(ServiceFailedError, match="shortened"):
            log.appender.put("T", b"")
        with pytest.raises(ServiceFailedError):
            log.appender.put("T", b"")
    log.appender.close()
