"""``Sql92Filter``: RocketMQ's SQL92 expressions over the properties of a message."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.errors import FilterEvaluationError, FilterSyntaxError, FilterWarning, shown_at
from rocketstore.filter.bloom_filter import GroupBits
from rocketstore.filter.sql92.faults import fault_reason
from rocketstore.filter.sql92.parser import Parser
from rocketstore.message import Message, StoredMessage
from rocketstore.sql92_program import MAX_EXPRESSION_LENGTH, Verdict

if TYPE_CHECKING:
    from rocketstore.filter.sql92.notes import Note

_PACKAGE = "rocketstore."
_log = logging.getLogger(__name__)
_LOG_INTERVAL_S = 60.0
#: As plain ints, which compare faster.
_TRUE, _ERROR = int(Verdict.TRUE), int(Verdict.ERROR)
_ANSWERS: dict[int, bool | None] = {
    _TRUE: True,
    int(Verdict.FALSE): False,
    int(Verdict.NULL): None,
}


class Sql92Filter:
    """Matches messages by an SQL92 expression over their properties, as a broker does.

    Parameters
    ----------
    expression : str
        For example ``"n > 50 AND color IN ('red', 'blue')"``.
    broker_version : str, optional
        The RocketMQ version whose dialect applies; the default is the newest. Versions before 5.1.3
        do not support CONTAINS, STARTSWITH and ENDSWITH.
    strict : bool
        Refuse what RocketMQ accepts although it ignores it or it never matches: text after the
        expression, a property alone as a condition, and others. Without it a ``FilterWarning``
        names them. Strict also takes 0.0, which RocketMQ refuses.

    Raises
    ------
    FilterSyntaxError
        If RocketMQ, or ``strict``, refuses the expression.

    Notes
    -----
    Values are the properties' texts. An unpaired surrogate in a text counts as ``?``, as it would
    be stored. An expression has at most 16 Mi characters, and at most 10,000 parentheses and prefix
    operators are open at one place; JVMs end with a ``StackOverflowError`` earlier.

    Source: RocketMQ ``filter/parser/SelectorParser.jj``, ``filter/expression/*``,
    ``broker/filter/ExpressionMessageFilter.java``.
    """

    def __init__(
        self, expression: str, *, broker_version: str | None = None, strict: bool = False
    ) -> None:
        self._open(expression, broker_version, strict)
        if self._notes:
            warnings.warn(FilterWarning(self._warning()), stacklevel=_frames_of_ours())

    def _open(self, expression: str, broker_version: str | None, strict: bool) -> None:
        if not isinstance(expression, str):
            raise TypeError(f"expression must be str, not {type(expression).__name__}")
        if len(expression) > MAX_EXPRESSION_LENGTH:
            raise FilterSyntaxError(
                expression,
                MAX_EXPRESSION_LENGTH + 1,
                f"an expression may have {MAX_EXPRESSION_LENGTH} characters, not {len(expression)}",
            )
        self._expression = expression
        self._dialect = Dialect.for_version(
            DEFAULT_VERSION if broker_version is None else broker_version
        )
        self._strict = strict
        text_search = self._dialect.filter_text_search
        parsed = Parser(expression, text_search=text_search, strict=strict).parse()
        self._notes: list[Note] = sorted(parsed.notes.found)
        if strict and self._notes:
            first = self._notes[0]
            raise FilterSyntaxError(expression, first.column, f"strict: {first.text}")
        self._unparsed = expression[parsed.unparsed_at :]
        self._names = tuple(parsed.code.names)
        self._columns = parsed.code.columns
        self._bytes = parsed.code.program()
        self._program = kernels.sql92.Program(self._bytes)
        self._evaluate = self._program.evaluate
        self._bits: GroupBits | None = None
        self._logged_at = float("-inf")

    @classmethod
    def again(
        cls,
        expression: str,
        broker_version: str,
        strict: bool,
        bits: GroupBits | None = None,
    ) -> Sql92Filter:
        """Make a filter that was made before, perhaps by another process; warn of nothing."""
        restored = cls.__new__(cls)
        restored._open(expression, broker_version, strict)
        restored._bits = bits
        return restored

    def _warning(self) -> str:
        shown = [
            f"{note.text} (column {note.column})\n{shown_at(self._expression, note.column)}"
            for note in self._notes
        ]
        return "\n".join(["strict=True would refuse this SQL92 expression:", *shown])

    # --- facts --------------------------------------------------------------------------------

    @property
    def expression(self) -> str:
        """The expression, as it was given."""
        return self._expression

    @property
    def broker_version(self) -> str:
        """The version whose dialect applies."""
        return self._dialect.name

    @property
    def strict(self) -> bool:
        """Whether ignored parts were refused."""
        return self._strict

    @property
    def names(self) -> tuple[str, ...]:
        """The properties that the expression asks for, in the order of their first use."""
        return self._names

    @property
    def unparsed(self) -> str:
        """The text at the end that RocketMQ does not read; ``""`` if it reads everything."""
        return self._unparsed

    @property
    def errors(self) -> int:
        """Evaluations so far in which RocketMQ's evaluator would have raised."""
        return self._program.errors

    @property
    def program(self) -> bytes:
        """The compiled program, for kernels that evaluate many records (``sql92_program``)."""
        return self._bytes

    # --- evaluation ---------------------------------------------------------------------------

    def evaluate(self, properties: Mapping[str, str] | Message) -> bool | None:
        """Return the expression's value: True, False, or ``None`` for NULL.

        Parameters
        ----------
        properties : mapping or Message

        Raises
        ------
        FilterEvaluationError
            Where RocketMQ's evaluator raises, as for ``n > 5`` if ``n`` is no integer.
        TypeError
            If a property that is asked for is not a str.
        """
        verdict = self._verdict(properties)
        if verdict == _ERROR:
            if isinstance(properties, Message):
                properties = properties.properties
            number = self._program.fault(properties)
            reason = fault_reason(self._bytes, number, self._program.names, properties)
            raise FilterEvaluationError(self._expression, self._columns[number], reason)
        return _ANSWERS[verdict]

    def matches(self, properties: Mapping[str, str] | Message) -> bool:
        """Return whether the expression is TRUE; False for FALSE, NULL and an error.

        Errors are counted in ``errors``, and reported to the log at most once a minute.
        """
        verdict = self._verdict(properties)
        if verdict == _ERROR:
            self._report_errors()
        return verdict == _TRUE

    def _verdict(self, properties: Mapping[str, str] | Message) -> int:
        if type(properties) is dict:
            return self._evaluate(properties)
        if isinstance(properties, StoredMessage):
            return self._program.evaluate_stored(properties.properties_bytes)
        if isinstance(properties, Message):
            properties = properties.properties
        return self._evaluate(properties)

    def count_errors(self, count: int) -> None:
        """Add evaluations that raised in a kernel that evaluates the program itself."""
        self._program.count_errors(count)
        if count:
            self._report_errors()

    def _report_errors(self) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL_S:
            self._logged_at = now
            _log.warning(
                "%d evaluations of the SQL92 filter %.200r raised and matched nothing",
                self.errors,
                self._expression,
            )

    @property
    def of_a_group(self) -> bool:
        """Whether ``of_group`` made it, so that it can judge by bit maps."""
        return self._bits is not None

    # --- RocketMQ's interface -----------------------------------------------------------------

    def of_group(self, bit_positions: Sequence[int], bit_count: int, born_time: int) -> Sql92Filter:
        """Return this filter with a consumer group's bits in ConsumeQueueExt.

        Parameters
        ----------
        bit_positions : sequence of int
        bit_count : int
            Bits of the whole bloom filter.
        born_time : int
            Epoch ms of the subscription; bit maps of earlier units do not know the group.
        """
        return self.again(
            self._expression,
            self._dialect.name,
            self._strict,
            GroupBits(tuple(bit_positions), bit_count, born_time),
        )

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any = None) -> bool:
        """Return False if the unit's bit map says that the message does not match.

        True without ``of_group``, and for units without a bit map of the right size or from before
        the subscription: then only the message can decide.
        """
        return self._bits is None or ext is None or not self._bits.excludes(ext)

    def is_matched_by_commit_log(self, message: Any) -> bool:
        """Return whether the message matches."""
        return self.matches(message)

    # --- object -------------------------------------------------------------------------------

    def _key(self) -> tuple[Any, ...]:
        return self._expression, self._dialect.filter_text_search, self._strict, self._bits

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Sql92Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return self.again, (self._expression, self._dialect.name, self._strict, self._bits)

    def __repr__(self) -> str:
        options = "" if self._dialect.name == DEFAULT_VERSION else (
            f", broker_version={self._dialect.name!r}"
        )  # fmt: skip
        return f"Sql92Filter({self._expression!r}{options}{', strict=True' * self._strict})"


def _frames_of_ours() -> int:
    """Return the ``stacklevel`` of the first caller outside of this package."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level
