"""A broker's queue in memory."""

from __future__ import annotations

from rocketstore.diagnosis.queue_model import BrokerQueue

FILE_NBYTES = 100  # five units


def filled(count: int, first: int = 0) -> BrokerQueue:
    queue = BrokerQueue(FILE_NBYTES, is_4=False)
    for number in range(first, first + count):
        queue.put(1000 + 10 * number, 10, 0, number)
    return queue


def test_puts_roll_and_repeats_are_ignored() -> None:
    queue = filled(7)
    queue.put(1000, 10, 0, 0)
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (0, 7, 1070)
    units = queue.units_from(3)
    assert units is not None
    assert [unit[0] for unit in units] == [1030, 1040]  # to the end of that file
    assert queue.units_from(7) is None


def test_a_queue_that_begins_in_the_middle_is_filled() -> None:
    queue = filled(2, first=7)
    assert (queue.min_offset, queue.max_offset) == (7, 9)
    assert queue.units_from(6) is None


def test_truncation_keeps_units_before_the_logs_end() -> None:
    queue = filled(7)
    queue.truncate(1060)
    assert (queue.max_offset, queue.max_physical) == (6, 1060)
    queue.truncate(1000)
    assert queue.max_offset == 0


def test_recovery_stops_at_the_first_unit_that_is_none() -> None:
    queue = filled(12)
    assert queue.recover() == 1120
    assert queue.max_offset == 12


def test_the_minimum_follows_the_log() -> None:
    queue = filled(4)
    assert queue.correct_min(1020)
    assert queue.min_offset == 2
    assert queue.correct_min(5000)
    assert queue.min_offset == queue.max_offset == 4


def test_a_last_file_without_a_unit_stops_the_5_line() -> None:
    for is_4 in (True, False):
        queue = BrokerQueue(FILE_NBYTES, is_4=is_4)
        for number in range(6):
            queue.put(1000 + 10 * number, 10, 0, number)
        assert queue.correct_min(1000)
        queue._files[-1].wrote = 0
        assert queue.correct_min(1000) is is_4
