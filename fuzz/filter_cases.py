"""Cases for SQL92 filters: random expressions and properties, and changed programs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kernel_seeds import load

from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.sql92.parser import Parser

load()
from support.sql92_cases import (  # noqa: E402 - load() makes the tests' helpers importable
    random_expression,
    random_properties,
    random_stored,
)

if TYPE_CHECKING:
    from kernel_cases import Runner

    from support.kernel_bodies import Bodies

_MOST_TRIES = 30
_OF_RECORDS = (
    *("KEYS IS NOT NULL", "TAGS = 'TagA'", "TAGS IN ('tag0', 'tag1', 'A')", "KEYS > 5"),
    *("UNIQ_KEY IS NULL", "NOT KEYS CONTAINS 'k'", "n BETWEEN 3 AND 50", "DELAY = 3"),
    *("TAGS = KEYS", "WAIT = 'true'", "n < 2.5", "KEYS STARTSWITH 'key'"),
)


def _program(random: Random) -> bytes:
    """Compile random expressions until one is valid."""
    for _ in range(_MOST_TRIES):
        expression = random_expression(random)
        text_search, strict = random.random() < 0.8, random.random() < 0.1
        try:
            parsed = Parser(expression, text_search=text_search, strict=strict).parse()
        except FilterSyntaxError as error:
            if not 1 <= error.column <= len(expression) + 1:
                raise AssertionError(f"column {error.column} of {expression!r}") from error
            continue
        return parsed.code.program()
    return Parser("a = 1", text_search=True, strict=False).parse().code.program()


def _changed(random: Random, program: bytes) -> bytes:
    content = bytearray(program)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(content))
        content[at] = random.choice((0, 1, 2, 7, 128, 255, content[at] ^ 1 << random.randrange(8)))
    return bytes(
        content[: random.randrange(len(content) + 1)] if random.random() < 0.05 else content
    )


def group_filters(random: Random, nbytes: int) -> list[tuple[bytes, bytes | None, bytes, int]]:
    """Return filters of the seeds' topics, for bit maps of ``nbytes``."""
    programs = [None, _program(random), _program(random)]
    topics = {key.partition(b"#")[0] for key in load().keys}
    return [
        (topic, random.choice(programs), random.randbytes(nbytes), random.choice((0, 2**41)))
        for topic in sorted(topics) * random.randrange(3)
    ]


def sql92(random: Random, runner: Runner) -> None:
    """Evaluate one program for some properties, as dicts and as stored bytes."""
    program = _program(random)
    if random.random() < 0.3:
        program = _changed(random, program)
    dicts = [random_properties(random) for _ in range(random.randint(1, 3))]
    stored = [random_stored(random) for _ in range(random.randint(1, 3))]

    def ask(body: Bodies) -> list[Any]:
        made = body.sql92.Program(program)
        found: list[Any] = [made.names]
        for properties in dicts:
            found += [made.evaluate(properties), made.matches(properties), made.fault(properties)]
        for content in stored:
            found.append(made.evaluate_stored(runner.buffer(body, content)))
        return [*found, made.errors]

    runner.both("sql92.Program", ask)


class CountedFilter:
    """A filter as kernels see it."""

    def __init__(self, program: bytes) -> None:
        self.program = program
        self.errors = 0

    def count_errors(self, count: int) -> None:
        """Add evaluations that raised."""
        self.errors += count


def record_program(random: Random) -> bytes:
    """Return a program that asks for what the seeds' records have, sometimes a changed one."""
    if random.random() < 0.3:
        program = _program(random)
    else:
        parts = random.choices(_OF_RECORDS, k=random.randint(1, 4))
        text = random.choice((" AND ", " OR ")).join(parts)
        program = Parser(text, text_search=True, strict=False).parse().code.program()
    return _changed(random, program) if random.random() < 0.1 else program


def select(random: Random, runner: Runner) -> None:
    """Select changed records by a filter, beside others."""
    import batch_cases
    import pass_cases

    limits = batch_cases.record_limits(random)
    program = record_program(random) if random.random() < 0.9 else None
    capacity = random.choice((1, 2, 64, 1 << 20, 0))
    filters: list[CountedFilter] = []

    def make(body: Bodies) -> Any:
        filters.append(CountedFilter(program or b""))
        asked = None if program is None else filters[-1]
        return body.passes_select.SelectPass(filter=asked, capacity=capacity, **limits)

    pass_cases.consumed(
        random,
        runner,
        "SelectPass.consume",
        make,
        lambda walk: (walk.rows, walk.last, walk.take(), filters[-1].errors),
    )


CASES: dict[str, Callable[[Random, Runner], None]] = {"sql92": sql92, "select": select}
