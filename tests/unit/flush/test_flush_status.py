"""Outcomes of puts whose wait for the disk ended in another way than was thought at first."""

from __future__ import annotations

import pytest

from rocketstore.status import PutMessageStatus
from support.appenders import Log, batch, message
from support.kernel_bodies import Bodies

TIMEOUT = PutMessageStatus.FLUSH_DISK_TIMEOUT


def test_one_message_and_a_batch(kernels: Bodies) -> None:
    log = Log(kernels, wait=lambda offset: PutMessageStatus.PUT_OK)
    for result in (
        log.appender.put("T", b"x", store_host="1.2.3.4:5"),
        log.appender.put_messages(batch(message(), message())),
    ):
        before = (result.status, result.msg_id, result.physical_offset, result.store_timestamp)
        late = result.with_flush_status(int(TIMEOUT))
        assert (late.status, late.ok, late.appended) == (TIMEOUT, False, True)
        assert late != result
        assert late.with_flush_status(PutMessageStatus.PUT_OK) == result
        assert (late.msg_id, late.physical_offset, late.store_timestamp) == before[1:]
        assert (late.nbytes, late.queue_offset) == (result.nbytes, result.queue_offset)
        assert late.message_count == result.message_count
        assert result.status == before[0]  # it is immutable


def test_what_was_not_appended_did_not_wait(kernels: Bodies) -> None:
    log = Log(kernels, max_message_size=10)
    refused = log.appender.put("T", bytes(11))
    assert refused.with_flush_status(TIMEOUT) == refused


def test_of_many_only_those_that_waited(kernels: Bodies) -> None:
    log = Log(kernels, max_message_size=10)
    patient = message(properties={"WAIT": "false"})
    results = log.appender.put_many([message(), message(body=bytes(11)), patient, message()])
    late = results.with_flush_status(TIMEOUT)
    illegal, ok = PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PUT_OK
    assert [one.status for one in late] == [TIMEOUT, illegal, ok, TIMEOUT]
    assert late.statuses.tolist() == [TIMEOUT, illegal, ok, TIMEOUT]
    assert late.physical_offsets == results.physical_offsets
    assert [one.msg_id for one in late] == [one.msg_id for one in results]
    assert [one.status for one in results] == [ok, illegal, ok, ok]
    assert late.with_flush_status(ok) == results
    assert len(log.appender.put_many([]).with_flush_status(TIMEOUT)) == 0


def test_outcomes_that_are_given_waited_for_nothing(kernels: Bodies) -> None:
    log = Log(kernels)
    many = kernels.commit_log.PutManyResult([log.appender.put("T", b"x")])
    assert many.with_flush_status(TIMEOUT) == many


def test_a_number_that_is_no_status(kernels: Bodies) -> None:
    log = Log(kernels)
    with pytest.raises(ValueError, match="99 is not a valid PutMessageStatus"):
        log.appender.put("T", b"x").with_flush_status(99)
    with pytest.raises(ValueError, match="99 is not a valid PutMessageStatus"):
        log.appender.put_many([]).with_flush_status(99)
