"""Records that pass filters: both bodies, any windows, against the messages themselves."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rocketstore import Sql92Filter
from rocketstore.message import StoredMessage
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.record_factory import make_record

BASE = 1 << 20
END = BASE + (1 << 20)
NO_LIMIT = 2**63 - 1
COLORS = (b"red", b"blue", b"", b"\xff", "grün".encode(), b"5", b"5.0")


def records(count: int, seed: int = 3) -> bytes:
    """Records of three topics one after the other, with all kinds of properties."""
    random = Random(seed)
    log = bytearray()
    for number in range(count):
        pairs = [b"n\x01%d" % number, b"color\x01" + random.choice(COLORS), b"KEYS\x01k%d" % number]
        if number % 3:
            pairs.append(b"TAGS\x01t%d" % (number % 4))
        if number % 7 == 0:
            pairs = [b"n\x01ten", b"x", b"\x01y", b"n\x01%d" % (number // 7)]
        if number % 31 == 0:
            pairs = [b"p%d\x01%d" % (one, one) for one in range(80)] + [b"n\x0151"]
        random.shuffle(pairs)
        log += make_record(
            topic=b"topic%d" % (number % 3),
            properties=b"" if number % 29 == 0 else b"\x02".join(pairs),
            body=random.randbytes(random.choice((0, 20, 200))),
            queue_id=number % 2,
            queue_offset=number,
            physical_offset=BASE + len(log) - 3 * (number % 37 == 36),  # some are ghosts
            store_timestamp=1_700_000_000_000 + number,
        )
    return bytes(log)


LOG = records(300)


def messages(log: bytes = LOG) -> list[StoredMessage]:
    """All but ghosts."""
    found, position = [], 0
    while position < len(log):
        message = StoredMessage(log, position, BASE, END)
        if int.from_bytes(log[position + 28 : position + 36], "big") == BASE + position:
            found.append(message)
        position += message.store_size
    return found


def select(
    body: Bodies, *, log: Any = LOG, step: int = 0, limit: int = NO_LIMIT, flags: int = 0,
    **options: Any,
) -> tuple[list[tuple[int, int, int, list[int]]], list[int]]:  # fmt: skip
    """All answers with ``rows`` and ``last``, and the positions."""
    made = body.passes_select.SelectPass(**options)
    position, answers, found = 0, [], []
    while True:
        upto = min(limit, BASE + position + step) if step else limit
        status, position = made.consume(log, position, len(log), BASE, END, upto, flags)
        taken = made.take()
        answers.append((status, position, made.last, taken))
        assert made.rows == 0
        found += taken
        at_step = step and status == RecordStatus.END and position < len(log)
        if status != RecordStatus.FULL and not (at_step and BASE + position < limit):
            return answers, found


def both(expression: str | None = None, **options: Any) -> list[int]:
    """The positions that both bodies find; they count the same errors."""
    filters = [None if expression is None else Sql92Filter(expression) for _ in range(2)]
    found = [
        select(body, filter=made, **options)
        for body, made in zip((NATIVE, REFERENCE), filters, strict=True)
    ]
    assert found[0] == found[1]
    if filters[0] is not None and filters[1] is not None:
        assert filters[0].errors == filters[1].errors
    return found[0][1]


EXPRESSIONS = (
    "n > 50 AND color IN ('red', 'blue')",
    "n BETWEEN 10 AND 20 OR TAGS = 't1'",
    "color = 5",
    "color IS NULL",
    "NOT (color = 'red') AND n <> 7",
    "color CONTAINS 'r'",
    "color = '\ufffd'",
    "p79 = 79",
    "n = 'ten'",
    "TRUE",
    "1 = 2",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_messages_that_match(expression: str) -> None:
    judge = Sql92Filter(expression)
    wanted = [m.physical_offset - BASE for m in messages() if judge.matches(m)]
    made = Sql92Filter(expression)
    assert select(NATIVE, filter=made)[1] == wanted
    assert made.errors == judge.errors
    assert both(expression) == wanted
    assert both(expression, step=997) == wanted
    assert both(expression, capacity=1) == wanted
    assert both(expression, flags=RecordFlags.CHECK_BODY_CRC) == wanted


def test_errors_are_counted_once_however_the_log_is_read() -> None:
    judge = Sql92Filter("color > 5")
    for message in messages():
        judge.matches(message)
    assert judge.errors > 100
    for body in (NATIVE, REFERENCE):
        for options in ({}, {"step": 100}, {"capacity": 1}, {"step": 5000, "capacity": 3}):
            made = Sql92Filter("color > 5")
            select(body, filter=made, **options)
            assert made.errors == judge.errors, (body, options)


def test_other_filters_are_asked_first() -> None:
    """Errors are those of the records that pass the others."""
    for options, passes in (
        ({"topics": ["topic1"]}, lambda m: m.topic == "topic1"),
        ({"queue_ids": {"topic1": [1]}}, lambda m: m.topic == "topic1" and m.queue_id == 1),
        ({"tags": ["t1", "t2"]}, lambda m: m.tags in ("t1", "t2")),
        ({"keys": ["k7", "k8", "k9"]}, lambda m: m.keys in ("k7", "k8", "k9")),
        ({"begin": 1_700_000_000_100}, lambda m: m.store_timestamp >= 1_700_000_000_100),
        ({"start_offsets": {("topic1", 1): (5, 50)}}, None),
    ):
        judge = Sql92Filter("color > 5 OR TRUE")
        chosen = [m for m in messages() if passes is None or passes(m)]
        if passes is None:
            chosen = [
                m for m in messages()
                if (m.topic, m.queue_id) != ("topic1", 1) or 5 <= m.queue_offset < 50
            ]  # fmt: skip
        wanted = [m.physical_offset - BASE for m in chosen if judge.matches(m)]
        for body in (NATIVE, REFERENCE):
            made = Sql92Filter("color > 5 OR TRUE")
            assert select(body, filter=made, **options)[1] == wanted
            assert made.errors == judge.errors
        assert both(None, **options) == [m.physical_offset - BASE for m in chosen]


def test_places_that_are_no_records() -> None:
    damaged = bytearray(LOG)
    at = messages()[100].physical_offset - BASE
    damaged[at + 4] ^= 1  # the magic
    for body in (NATIVE, REFERENCE):
        answers, found = select(body, log=bytes(damaged))
        assert answers[-1][:2] == (RecordStatus.BAD_MAGIC, at)
        assert len(found) == 100
        made = body.passes_select.SelectPass()
        assert made.consume(b"", 0, 0, BASE, END, NO_LIMIT, 0) == (RecordStatus.END, 0)
        assert made.last == -1
        first = messages()[0].store_size
        assert made.consume(LOG, 0, len(LOG), BASE, END, BASE + 1, 0) == (RecordStatus.END, first)
        assert (made.last, made.rows, made.take()) == (0, 1, [0])


def test_wrong_arguments(kernels: Bodies) -> None:
    make = kernels.passes_select.SelectPass
    for options in ({"filter": "n > 5"}, {"filter": object()}, {"topics": "topic1"}):
        with pytest.raises(TypeError):
            make(**options)
    for options in ({"capacity": 0}, {"capacity": 2**20 + 1}, {"begin": 2**63}):
        with pytest.raises(ValueError, match=r"must be from|does not fit"):
            make(**options)

    class NoProgram:
        program = b"no program"

        def count_errors(self, count: int) -> None:
            raise AssertionError(count)

    with pytest.raises(ValueError, match="no program"):
        make(filter=NoProgram())
    with pytest.raises(ValueError, match="do not lie in order"):
        make().consume(LOG, 0, len(LOG) + 1, BASE, END, NO_LIMIT, 0)
