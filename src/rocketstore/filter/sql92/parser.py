"""Parses an SQL92 expression and compiles it, from left to right with a stack of its own.

The levels of the grammar are OR, AND, equality, comparison, prefix operators. Binary operators are
left-associative, and NOT binds tighter than a comparison. A term that needs instructions leaves its
value as the program's result; it is put on the stack when a second one may follow.

Source: RocketMQ ``filter/parser/SelectorParser.jj``, ``filter/expression/*``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.sql92 import lexer, operands
from rocketstore.filter.sql92.assembler import Assembler
from rocketstore.filter.sql92.lexer import Lexer, Token
from rocketstore.filter.sql92.notes import Notes
from rocketstore.filter.sql92.operands import RefusedError, Term
from rocketstore.sql92_program import MAX_NESTING, Op, Operand, Verdict

_OR, _AND, _EQUALITY, _COMPARISON, _PREFIX = range(1, 6)
_LEVELS = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "IS"), _EQUALITY),
    **dict.fromkeys((">", ">=", "<", "<=", "NOT", "BETWEEN", "IN"), _COMPARISON),
    **dict.fromkeys(lexer.TEXT_SEARCHES, _COMPARISON),
}
_ORDERS = {
    ">": Op.GREATER,
    ">=": Op.GREATER_OR_EQUAL,
    "<": Op.LESS,
    "<=": Op.LESS_OR_EQUAL,
}
_SEARCHES = {
    "CONTAINS": Op.CONTAINS,
    "STARTSWITH": Op.STARTS_WITH,
    "ENDSWITH": Op.ENDS_WITH,
}
_LITERALS = {"TRUE": Verdict.TRUE, "FALSE": Verdict.FALSE}
#: Tokens after which a term may need instructions.
_LONG_TERMS = frozenset({"-", "+", "(", "NOT"})
_OPEN, _LOW, _HIGH = "(", "BETWEEN", "BETWEEN AND"


class _Next(Enum):
    """What may follow."""

    TERM = 1
    OPERATOR = 2
    END = 3


class _Pending(NamedTuple):
    """What waits for the term that follows: a parenthesis or an operator with its left operand."""

    kind: str
    level: int
    at: int
    left: Term = Term(Operand.NULL, 0)
    #: The instruction whose jump leads past the operator; -1 if there is none.
    jump: int = -1
    #: The instruction that jumps if the left operand is NULL; -1 if there is none.
    skip: int = -1
    negated: bool = False
    low: Term = Term(Operand.NULL, 0)


@dataclass
class Parsed:
    """What an expression was compiled to.

    Attributes
    ----------
    code : Assembler
    unparsed_at : int
        Where the text begins that RocketMQ does not read, from 0.
    notes : Notes
        What RocketMQ accepts and what never matches.
    """

    code: Assembler = field(default_factory=Assembler)
    unparsed_at: int = 0
    notes: Notes = field(default_factory=Notes)


class Parser:
    """Parses one expression; ``parse`` is called once."""

    def __init__(self, expression: str, *, text_search: bool, strict: bool) -> None:
        self._expression = expression
        self._strict = strict
        self._lexer = Lexer(expression, text_search=text_search)
        self._parsed = Parsed()
        self._code = self._parsed.code
        self._notes = self._parsed.notes
        self._pending: list[_Pending] = []
        self._nesting = 0
        self._token = self._lexer.next()
        self._term = Term(Operand.NULL, 0)
        #: After IS NULL no comparison may follow: it ends the level of comparisons.
        self._is_closed = False

    def parse(self) -> Parsed:
        """Return what was parsed. Raises ``FilterSyntaxError``."""
        while True:
            self._read_term()
            while (step := self._follow()) == _Next.OPERATOR:
                pass
            if step == _Next.END:
                return self._parsed

    # --- tokens -------------------------------------------------------------------------------

    def _advance(self) -> Token:
        """Return the current token and read the next one."""
        token = self._token
        self._token = self._lexer.next()
        return token

    def _fault(self, at: int, reason: str) -> FilterSyntaxError:
        return FilterSyntaxError(self._expression, at + 1, reason)

    def _expect(self, kind: str, what: str) -> Token:
        if self._token.kind != kind:
            raise self._fault(self._token.at, f"{what} is missing here")
        return self._advance()

    def _checked(self, at: int, check: Callable[..., None], *terms: Term) -> None:
        try:
            check(*terms)
        except RefusedError as refused:
            raise self._fault(at, refused.reason) from None

    # --- terms --------------------------------------------------------------------------------

    def _read_term(self) -> None:
        """Read prefix operators and parentheses, then an operand."""
        while self._token.kind in _LONG_TERMS:
            self._nesting += 1
            if self._nesting > MAX_NESTING:
                raise self._fault(self._token.at, f"nested more than {MAX_NESTING} times")
            token = self._advance()
            level = 0 if token.kind == _OPEN else _PREFIX
            self._pending.append(_Pending(token.kind, level, token.at))
        token = self._token
        try:
            self._term = self._operand(token)
        except RefusedError as refused:
            raise self._fault(token.at, refused.reason) from None
        self._is_closed = False
        self._advance()

    def _operand(self, token: Token) -> Term:
        at, code_at = token.at, len(self._code)
        if token.kind == lexer.NAME:
            self._code.name(token.text)
            return Term(Operand.NAME, at, code_at, token.text)
        if token.kind == lexer.STRING:
            text = lexer.string_value(token)
            return Term(Operand.TEXT, at, code_at, text, is_constant=True)
        if token.kind == lexer.INTEGER:
            return operands.integer(token.text, at, code_at)
        if token.kind == lexer.FLOAT:
            return operands.decimal(token.text, at, code_at, strict=self._strict)
        if token.kind in _LITERALS:
            self._code.emit(Op.SET, at, left_at=_LITERALS[token.kind])
            return Term(Operand.RESULT, at, code_at, is_constant=True, is_boolean=True)
        if token.kind == "NULL":
            return Term(Operand.NULL, at, code_at, is_constant=True, is_boolean=True)
        found = token.text if token.kind != lexer.END else "the expression ends"
        raise RefusedError(f"a property, a number or a text is missing here: {found[:40]}")

    def _condition(self, term: Term) -> None:
        """Leave a term that is used as a condition as the result."""
        if term.kind is Operand.NAME:
            self._notes.bare_property(term)
            self._code.emit(Op.CAST, term.at, term)
        elif not term.is_boolean:
            raise self._fault(
                term.at, "a condition is needed here, not a number, a text or a negative"
            )
        elif term.kind is Operand.NULL:
            self._code.emit(Op.SET, term.at, left_at=Verdict.NULL)

    def _put_aside(self, term: Term) -> Term:
        """Put a left operand that is the result on the stack."""
        if term.kind is not Operand.RESULT:
            return term
        self._code.emit(Op.PUSH, term.at)
        return term._replace(kind=Operand.PUSHED)

    def _skip_if_null(self, left: Term, at: int) -> int:
        """Emit a jump past what follows, if it may need instructions and ``left`` may be NULL."""
        if left.kind in operands.MISSING and self._token.kind in _LONG_TERMS:
            return self._code.emit(Op.SKIP_NULL, at, left)
        return -1

    def _emit_order(self, op: Op, at: int, left: Term, right: Term, skip: int) -> None:
        if skip >= 0 and skip == len(self._code) - 1:
            self._code.truncate(skip)
            skip = -1
        self._notes.order(left, right)
        self._code.emit(op, at, left, right)
        if skip >= 0:
            self._code.jump_here(skip)

    # --- operators ----------------------------------------------------------------------------

    def _follow(self) -> _Next:
        """Read what follows a term, and compile the operators before it that are complete."""
        token = self._token
        level = _LEVELS.get(token.kind, 0)
        if self._is_closed and level == _COMPARISON:
            level = 0
        self._reduce(_PREFIX)
        if self._pending and self._pending[-1].kind == _LOW:
            self._read_high(self._pending.pop())
            return _Next.TERM
        self._reduce(max(level, _OR))
        if level == _EQUALITY:
            return self._read_equality()
        if level == _COMPARISON:
            return self._read_comparison()
        if level:
            return self._read_logic(level)
        if not self._pending:
            self._finish()
            return _Next.END
        opened = self._pending[-1]
        if token.kind != ")":
            raise self._fault(token.at, f") is missing here for ( in column {opened.at + 1}")
        self._pending.pop()
        self._nesting -= 1
        self._is_closed = False
        self._advance()
        return _Next.OPERATOR

    def _finish(self) -> None:
        self._condition(self._term)
        self._parsed.unparsed_at = len(self._expression)
        if self._token.kind != lexer.END:
            self._parsed.unparsed_at = self._token.at
            self._notes.unparsed(self._token)

    def _read_logic(self, level: int) -> _Next:
        token = self._advance()
        self._condition(self._term)
        op = Op.AND_LEFT if level == _AND else Op.OR_LEFT
        jump = self._code.emit(op, token.at)
        self._pending.append(_Pending(token.kind, level, token.at, self._term, jump=jump))
        return _Next.TERM

    def _read_equality(self) -> _Next:
        token = self._advance()
        if token.kind != "IS":
            left = self._put_aside(self._term)
            self._pending.append(_Pending(token.kind, _EQUALITY, token.at, left))
            return _Next.TERM
        negated = self._token.kind == "NOT"
        if negated:
            self._advance()
        self._expect("NULL", "NULL")
        null = Term(Operand.NULL, token.at)
        self._code.emit(Op.EQUAL, token.at, self._term, null, negated=negated)
        self._set_result()
        self._is_closed = True
        return _Next.OPERATOR

    def _read_comparison(self) -> _Next:
        token = self._advance()
        negated = token.kind == "NOT"
        if negated:
            token = self._token
            if token.kind not in ("IN", "BETWEEN", *_SEARCHES):
                raise self._fault(token.at, "IN, BETWEEN or a text search is missing after NOT")
            self._advance()
        if token.kind in _SEARCHES:
            return self._read_search(token, negated=negated)
        if token.kind == "IN":
            return self._read_in(token, negated=negated)
        left = self._term
        self._checked(left.at, operands.check_ordered, left)
        skip = self._skip_if_null(left, token.at)
        kind = _LOW if token.kind == "BETWEEN" else token.kind
        self._pending.append(
            _Pending(kind, _COMPARISON, token.at, left, skip=skip, negated=negated)
        )
        return _Next.TERM

    def _read_search(self, token: Token, *, negated: bool) -> _Next:
        text = self._expect(lexer.STRING, "a text in quotes")
        left = self._term
        right = Term(Operand.TEXT, text.at, 0, lexer.string_value(text), is_constant=True)
        self._notes.search(left, right)
        if right.value == "":
            # RocketMQ does not evaluate the left operand then, so that it cannot raise.
            self._code.truncate(left.code_at)
            self._code.emit(Op.SET, token.at, left_at=Verdict.FALSE)
        else:
            self._code.emit(_SEARCHES[token.kind], token.at, left, right, negated=negated)
        self._set_result()
        return _Next.OPERATOR

    def _read_in(self, token: Token, *, negated: bool) -> _Next:
        if self._term.kind is not Operand.NAME:
            raise self._fault(self._term.at, "IN needs a property on its left")
        self._expect("(", "(")
        texts = [lexer.string_value(self._expect(lexer.STRING, "a text in quotes"))]
        while self._token.kind == ",":
            self._advance()
            texts.append(lexer.string_value(self._expect(lexer.STRING, "a text in quotes")))
        self._expect(")", ")")
        self._code.emit_in(token.at, self._term, texts, negated=negated)
        self._set_result()
        return _Next.OPERATOR

    def _read_high(self, between: _Pending) -> None:
        """Compile the first comparison of BETWEEN and go on to the second limit."""
        low = self._term
        joining = self._expect("AND", "AND")
        self._checked(low.at, operands.check_ordered, low)
        op = Op.LESS if between.negated else Op.GREATER_OR_EQUAL
        self._emit_order(op, between.at, between.left, low, between.skip)
        jump = self._code.emit(Op.OR_LEFT if between.negated else Op.AND_LEFT, joining.at)
        skip = self._skip_if_null(between.left, joining.at)
        self._pending.append(between._replace(kind=_HIGH, low=low, jump=jump, skip=skip))

    # --- reducing -----------------------------------------------------------------------------

    def _reduce(self, level: int) -> None:
        """Compile the operators of at least this level that wait for the current term."""
        while self._pending and self._pending[-1].level >= level:
            pending = self._pending.pop()
            if pending.level == _PREFIX:
                self._reduce_prefix(pending)
            elif pending.level == _COMPARISON:
                self._reduce_order(pending)
            elif pending.level == _EQUALITY:
                self._reduce_equality(pending)
            else:
                self._condition(self._term)
                self._code.emit(Op.AND if pending.level == _AND else Op.OR, pending.at)
                self._code.jump_here(pending.jump)
                self._set_result(pending.left)

    def _reduce_prefix(self, pending: _Pending) -> None:
        self._nesting -= 1
        if pending.kind == "NOT":
            self._condition(self._term)
            self._code.emit(Op.NOT, pending.at)
            self._set_result(self._term._replace(at=pending.at))
        elif pending.kind == "-":
            self._notes.negative(self._term, pending.at)
            self._term = operands.negative(self._term, pending.at)

    def _reduce_order(self, pending: _Pending) -> None:
        left, right = pending.left, self._term
        self._checked(right.at, operands.check_ordered, right)
        op = _ORDERS.get(pending.kind)
        if op is not None:
            self._emit_order(op, pending.at, left, right, pending.skip)
        else:
            if not pending.negated:
                self._checked(right.at, operands.check_limits, pending.low, right)
            op = Op.GREATER if pending.negated else Op.LESS_OR_EQUAL
            self._emit_order(op, pending.at, left, right, pending.skip)
            self._code.emit(Op.OR if pending.negated else Op.AND, pending.at)
            self._code.jump_here(pending.jump)
        self._set_result(left)

    def _reduce_equality(self, pending: _Pending) -> None:
        left, right = pending.left, self._term
        self._checked(pending.at, operands.check_equal, left, right)
        self._notes.equal(left, right)
        self._code.emit(Op.EQUAL, pending.at, left, right, negated=pending.kind == "<>")
        self._set_result(left)

    def _set_result(self, left: Term | None = None) -> None:
        """Make the result the current term; it begins where the left operand does."""
        at, code_at = (self._term if left is None else left)[1:3]
        self._term = Term(Operand.RESULT, at, code_at, is_boolean=True)
