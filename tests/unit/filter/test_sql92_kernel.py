"""Programs of SQL92 filters in both bodies: stored bytes, odd texts, programs of no compiler."""

from __future__ import annotations

import struct
import threading
from random import Random
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.filter.sql92.parser import Parser
from rocketstore.sql92_program import (
    MAGIC,
    SQL92_HEADER,
    SQL92_INSTRUCTION,
    SQL92_TEXT,
    Op,
    Operand,
    Verdict,
)
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

TRUE, FALSE, NULL, ERROR = Verdict.TRUE, Verdict.FALSE, Verdict.NULL, Verdict.ERROR


def compiled(expression: str) -> bytes:
    return Parser(expression, text_search=True, strict=False).parse().code.program()


def program(expression: str, kernels: Bodies) -> Any:
    return kernels.sql92.Program(compiled(expression))


# --- stored properties ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "verdict"),
    [
        (b"", NULL),
        (b"a\x01x", TRUE),
        (b"a\x01x\x02", TRUE),
        (b"\x02\x02a\x01x\x02\x02", TRUE),
        (b"a\x01y\x02a\x01x\x02", TRUE),
        (b"a\x01x\x02a\x01y\x02", FALSE),
        (b"a\x01x\x02a\x01\x02", TRUE),  # an entry without a value is dropped
        (b"a\x01x\x02a\x02", TRUE),
        (b"a\x01x\x01y\x02", FALSE),  # the value is "x\x01y"
        (b"a\x01\x01x\x02", FALSE),
        (b"\x01x\x02", NULL),
        (b"A\x01x\x02aa\x01x\x02", NULL),
        (b"a\x00\x01x\x02", NULL),
        (b"a\x01x\x00\x02", FALSE),
        (b"a", NULL),
        (b"a\x01", NULL),
        (b"KEYS\x01" + b"k" * 300 + b"\x02a\x01x", TRUE),
        (b"a\x01x\x02KEYS\x01" + b"k" * 300, TRUE),
        *((b"b\x01" + b"k" * n + b"\x02a\x01x\x02", TRUE) for n in range(52, 64)),
        *((b"b\x01" + b"k" * n + b"\x02a\x01x", TRUE) for n in range(116, 128)),
    ],
)
def test_stored_entries(stored: bytes, verdict: Verdict, kernels: Bodies) -> None:
    made = program("a = 'x'", kernels)
    assert made.evaluate_stored(stored) == verdict
    assert made.evaluate_stored(bytearray(stored)) == verdict
    assert made.evaluate_stored(memoryview(b"a\x01z\x02" + stored)[4:]) == verdict


def test_the_longest_properties(kernels: Bodies) -> None:
    made = program("a = 'x'", kernels)
    longest = b"b\x01" + b"v" * (formats.MAX_PROPERTIES_NBYTES - 6) + b"\x02a\x01x"
    assert len(longest) == formats.MAX_PROPERTIES_NBYTES
    assert made.evaluate_stored(longest) == TRUE
    with pytest.raises(ValueError, match="have 32768 bytes, more than 32767"):
        made.evaluate_stored(longest + b"x")


@pytest.mark.parametrize(
    ("expression", "value", "verdict"),
    [
        ("a = '\ufffd'", b"\xff", TRUE),
        ("a = '\ufffd'", b"\xed\xa0\x80", TRUE),  # one group for Java
        ("a = '\ufffd\ufffd'", b"\xed\xa0\x80", FALSE),
        ("a = '\ufffd'", b"\xf0\x9f\x98", TRUE),
        ("a = '\ufffdx'", b"\xf0\x9f\x98x", TRUE),
        ("a = '\ufffd'", "\ufffd".encode(), TRUE),
        ("a <> '\ufffd'", b"\xff", FALSE),
        ("a = 'x'", b"x\xff", FALSE),
        ("a IN ('y', '\ufffd\ufffd', 'x')", b"\xff\xfe", TRUE),
        ("a NOT IN ('y', '\ufffd\ufffd', 'x')", b"\xff\xfe", FALSE),
        ("a CONTAINS 'b\ufffd'", b"ab\xc3", TRUE),
        ("a STARTSWITH '\ufffd\ufffda'", b"\xc3\xe2\x82a", TRUE),
        ("a ENDSWITH '\ufffd'", b"\xc3\xe2\x82", TRUE),
        ("a CONTAINS '\xe9'", b"\xe2\x82\xc3\xa9", TRUE),
        ("a CONTAINS '\xe9'", b"\xc3\xff\xa9", FALSE),
        ("a = b", b"\xff", TRUE),
        ("a <> b", b"\xff", FALSE),
        ("a > 1", b"1\xff", ERROR),
        ("a = TRUE", b"true\xff", FALSE),
    ],
)
def test_malformed_texts_are_read_as_java_does(
    expression: str, value: bytes, verdict: Verdict, kernels: Bodies
) -> None:
    made = program(expression, kernels)
    assert made.evaluate_stored(b"b\x01\xfe\x02a\x01" + value + b"\x02") == verdict
    same = value.replace(b"\xed\xa0\x80", b"\xff").decode(errors="replace")
    assert made.evaluate({"b": "\ufffd", "a": same}) == verdict


def test_a_long_needle_of_malformed_text(kernels: Bodies) -> None:
    made = program(f"a CONTAINS '{'ab' * 40}\ufffd'", kernels)
    assert made.evaluate_stored(b"a\x01" + b"ab" * 100 + b"\xff\x02") == TRUE
    assert made.evaluate_stored(b"a\x01" + b"ab" * 39 + b"\xff\x02") == FALSE
    assert made.evaluate_stored(b"a\x01" + b"\xff" * 32000 + b"\x02") == FALSE


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("5", 5), ("+5", 5), ("-5", -5), ("0005", 5), ("-0", 0)),
        *(("2147483647", 2147483647), ("-2147483648", -2147483648)),
        *(("\u0665", 5), ("\uff15\u0e55", 55), ("-\u0967", -1)),
        *((text, None) for text in ("", "+", "-", "5 ", " 5", "5L", "5.0", "0x5", "1_0", "+-5")),
        *((text, None) for text in ("2147483648", "-2147483649", "9" * 400, "\u00b2", "\u2160")),
        *((text, None) for text in ("\U0001d7cf", "5\x00", "\u4e94")),
    ],
)
def test_integers(text: str, value: int | None, kernels: Bodies) -> None:
    if value is None:
        assert program("a = 1", kernels).evaluate({"a": text}) == ERROR
    else:
        assert program(f"a = {value}", kernels).evaluate({"a": text}) == TRUE
        assert program(f"a <> {value}", kernels).evaluate_stored(f"a\x01{text}".encode()) == FALSE


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        *(("9223372036854775807", TRUE), ("-9223372036854775808", FALSE)),
        *(("2147483648", TRUE), ("9223372036854775808", ERROR), ("-9223372036854775809", ERROR)),
        *(("99999999999999999999", ERROR), ("0" * 500 + "2147483649", TRUE)),
    ],
)
def test_long_integers(text: str, verdict: Verdict, kernels: Bodies) -> None:
    assert program("a >= 2147483648", kernels).evaluate({"a": text}) == verdict


_LARGEST = 1.7976931348623157e308
DOUBLES = [
    *(("5", 5.0), (" 5\t\x00", 5.0), ("5.", 5.0), (".5", 0.5), ("+5e0f", 5.0), ("5D", 5.0)),
    *(("1e23", 1e23), ("1e22", 1e22), ("123456789012345678901234567890", 1.2345678901234568e29)),
    *(("9007199254740993", 9007199254740992.0), ("9007199254740993.00001", 9007199254740994.0)),
    *(("4.9e-324", 5e-324), ("2.4703282292062328e-324", 5e-324), ("1e-400", 0.0)),
    *(("2.2250738585072011e-308", 2.225073858507201e-308), ("0.1e-6000000000000000000", 0.0)),
    *(("1.7976931348623158e308", 1.7976931348623157e308), ("1.8e308", float("inf"))),
    *(("1e99999999999999999999", float("inf")), ("-1e400", float("-inf")), ("0e99999999", 0.0)),
    *(("0." + "0" * 400 + "1e401", 1.0), ("1" + "0" * 400 + "e-400", 1.0), ("-0", -0.0)),
    *(("0x1p3", 8.0), ("0X.8P-1074d", 0.0), ("0x.80000000001p-1074", 5e-324), ("-0x1.p1", -2.0)),
    *(("0x1.fffffffffffff8p1023", float("inf")), ("0x1.fffffffffffff7p1023", _LARGEST)),
    *(("0x1p99999999999", float("inf")), ("0x0p99999999999", 0.0), ("0x1p-99999999999", 0.0)),
    *(("NaN", float("nan")), ("-NaN", float("nan")), ("+Infinity", float("inf"))),
]  # fmt: skip
NO_DOUBLES = [
    *("", " ", ".", "e5", "5e", "5e+", "5L", "1_0", "0x1", "0x", "0xp1", "0x.p1", "1e5.0", "nan"),
    *("inf", "infinity", "NaNf", "5ff", "\u0665", "5\u00a0", "--5", "+ 5", "1.2.3", "0x1.2.3p1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), DOUBLES)
def test_doubles(text: str, value: float, kernels: Bodies) -> None:
    """A property is compared with the same number, in hexadecimal and thus exactly."""
    made = program("a = b", kernels)
    assert made.evaluate({"a": text, "b": text}) == TRUE
    ordered = [program(f"a {op} b", kernels) for op in ("<", "<=", ">=", ">")]
    exact = "NaN" if value != value else "Infinity" if value == float("inf") else value.hex()
    exact = exact.replace("inf", "Infinity") if exact == "-inf" else exact
    properties = {"a": text, "b": exact}
    assert [one.evaluate(properties) for one in ordered] == [FALSE, TRUE, TRUE, FALSE]


@pytest.mark.parametrize("text", NO_DOUBLES)
def test_what_is_no_double(text: str, kernels: Bodies) -> None:
    assert program("a > 0.5", kernels).evaluate({"a": text}) == ERROR
    assert program("a > b", kernels).evaluate({"a": "1", "b": text}) == ERROR


def test_order_of_odd_doubles(kernels: Bodies) -> None:
    order = ["-Infinity", "-1", "-4.9e-324", "-0.0", "0", "4.9e-324", "1", "Infinity", "NaN"]
    less, equal = program("a < b", kernels), program("a <= b", kernels)
    for i, first in enumerate(order):
        for j, second in enumerate(order):
            properties = {"a": first, "b": second}
            assert less.evaluate(properties) == (i < j)
            assert equal.evaluate(properties) == (i <= j)


def test_random_doubles_are_read_alike() -> None:
    random = Random(5)
    native, reference = (program("a < b", body) for body in (NATIVE, REFERENCE))
    for _ in range(3000):
        (value,) = struct.unpack("<d", random.randbytes(8))
        digits = random.randint(1, 24)
        text = random.choice((repr(value), f"{value:.{digits}e}", value.hex()))
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        (near,) = struct.unpack("<d", struct.pack("<Q", bits ^ 1))
        for other in (repr(near), near.hex()):
            properties = {"a": text, "b": other}
            assert native.evaluate(properties) == reference.evaluate(properties), properties


# --- texts ----------------------------------------------------------------------------------------


def test_a_list_of_any_length(kernels: Bodies) -> None:
    for count in (1, 2, 7, 8, 9, 100):
        texts = [f"t{n:0{1 + n % 5}}" for n in range(count)]
        made = program("a IN (" + ",".join(f"'{text}'" for text in texts + texts) + ")", kernels)
        assert all(made.evaluate({"a": text}) == TRUE for text in texts)
        assert all(made.evaluate({"a": text + "x"}) == FALSE for text in texts)
        assert made.evaluate({"a": ""}) == FALSE


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, 200])
def test_any_number_of_names(count: int, kernels: Bodies) -> None:
    names = [f"n{number}" + "x" * (number % 70) for number in range(count)]
    made = program(" AND ".join(f"{name} = '{name}'" for name in names), kernels)
    assert sorted(made.names) == sorted(names)
    properties = {name: name for name in names}
    stored = kernels.message.encode_properties(properties, True)
    assert made.evaluate(properties) == made.evaluate_stored(stored) == TRUE
    for name in names[:: max(1, count // 7)]:
        fewer = {key: value for key, value in properties.items() if key != name}
        assert made.evaluate(fewer) == NULL
        assert made.evaluate_stored(kernels.message.encode_properties(fewer, True)) == NULL


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 500])
def test_searches(length: int, kernels: Bodies) -> None:
    wanted = ("ab" * length)[:length]
    made = [
        program(f"a {search} '{wanted}'", kernels)
        for search in ("CONTAINS", "STARTSWITH", "ENDSWITH")
    ]
    for text, verdicts in (
        (wanted, (1, 1, 1)),
        (f"x{wanted}x", (1, 0, 0)),
        (f"{wanted}x", (1, 1, 0)),
        (f"x{wanted}", (1, 0, 1)),
        (wanted[:-1] or "x", (0, 0, 0)),
        (f"{wanted[:-1]}x{wanted[1:]}", (0, 0, 0)),
        (f"b{wanted[:-1]}b{wanted}", (1, 0, 1)),
    ):
        assert tuple(one.evaluate({"a": text}) for one in made) == verdicts, text


def test_a_hostile_search_takes_linear_time() -> None:
    made = program(f"a CONTAINS '{'a' * 16000}b'", NATIVE)
    stored = b"a\x01" + b"a" * 32000
    for _ in range(500):
        assert made.evaluate_stored(stored) == FALSE


# --- programs -------------------------------------------------------------------------------------


def assemble(
    *code: tuple[int, ...],
    names: tuple[bytes, ...] = (b"a",),
    texts: tuple[bytes, ...] = (b"x",),
    numbers: tuple[int, ...] = (5,),
    depth: int = 1,
    **header: int,
) -> bytes:
    """A program of any instructions; missing fields are 0."""
    pool = b"".join((*names, *texts))
    tables, at = b"", 0
    for text in (*names, *texts):
        tables += SQL92_TEXT.struct.pack(at, len(text))
        at += len(text)
    pool += bytes(-len(pool) % 8)
    fields = {
        "magic": MAGIC,
        "number_count": len(numbers),
        "code_count": len(code),
        "name_count": len(names),
        "text_count": len(texts),
        "pool_nbytes": len(pool),
        "depth": depth,
        "zero": 0,
    }
    content = SQL92_HEADER.struct.pack(*{**fields, **header}.values())
    content += b"".join(struct.pack("=q", number) for number in numbers)
    content += b"".join(SQL92_INSTRUCTION.struct.pack(*one, *[0] * (7 - len(one))) for one in code)
    return content + tables + pool


SET_TRUE = (Op.SET, 0, 0, 0, TRUE)


def test_an_assembled_program(kernels: Bodies) -> None:
    assert kernels.sql92.Program(assemble(SET_TRUE)).evaluate({}) == TRUE
    assert kernels.sql92.Program(assemble((Op.NOT,))).evaluate({}) == NULL


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(32),
        assemble(SET_TRUE)[:-8],
        assemble(SET_TRUE) + bytes(8),
        assemble(),
        assemble(SET_TRUE, magic=MAGIC + 1),
        assemble(SET_TRUE, zero=1),
        assemble(SET_TRUE, depth=2),
        assemble(SET_TRUE, depth=-1),
        assemble(SET_TRUE, name_count=-1, text_count=3),
        assemble(SET_TRUE, number_count=2**31 - 1),
        assemble(SET_TRUE, text_count=2**31 - 1),
        assemble(SET_TRUE, pool_nbytes=9),
        assemble(SET_TRUE, names=(b"b", b"a")),
        assemble(SET_TRUE, names=(b"a", b"a")),
        assemble(SET_TRUE, names=(b"aa", b"b")),
        assemble(SET_TRUE, names=(b"",)),
        assemble(SET_TRUE, names=(b"\xff",)),
        assemble(SET_TRUE, texts=(b"\xed\xa0\x80",)),
        assemble((18,)),
        assemble((-1,)),
        assemble((Op.SET, 2)),
        assemble((Op.SET, -1)),
        assemble((Op.SET, 0, 8)),
        assemble((Op.SET, 0, 0, -1)),
        assemble((Op.SET, 0, 0, 0, ERROR)),
        assemble((Op.SET, 0, 0, 0, -1)),
        assemble((Op.CAST, 0, Operand.TEXT)),
        assemble((Op.CAST, 0, Operand.NAME, 0, 1)),
        assemble((Op.CAST, 0, Operand.NAME, 0, -1)),
        assemble((Op.EQUAL, 0, Operand.TEXT, 0, 1)),
        assemble((Op.EQUAL, 0, 0, Operand.LONG, 0, 1)),
        assemble((Op.EQUAL, 0, 0, Operand.DOUBLE, 0, -1)),
        assemble((Op.AND_LEFT, 0, 0, 0, 0, 0, 0)),
        assemble((Op.OR_LEFT, 0, 0, 0, 0, 0, 2)),
        assemble((Op.SKIP_NULL, 0, 0, 0, 0, 0, -5)),
        assemble((Op.IN, 0, Operand.NULL, 0, 0, 0, 1)),
        assemble((Op.IN, 0, Operand.NAME, 0, 0, 0, 0)),
        assemble((Op.IN, 0, Operand.NAME, 0, 0, 0, 2)),
        assemble((Op.IN, 0, Operand.NAME, 0, 0, 2**31 - 1, 2)),
        assemble((Op.IN, 0, Operand.NAME, 0, 0, -1, 1)),
        assemble((Op.IN, 0, Operand.NAME, 0, 0, 0, 2), texts=(b"y", b"x")),
        assemble((Op.CONTAINS, 0, Operand.NAME, Operand.NAME)),
        assemble((Op.ENDS_WITH, 0, Operand.NAME, Operand.TEXT, 0, 1)),
    ],
)
def test_what_is_no_program(content: bytes, kernels: Bodies) -> None:
    with pytest.raises(ValueError, match="these bytes are no program of an SQL92 filter"):
        kernels.sql92.Program(content)


@pytest.mark.parametrize(
    "code",
    [
        [(Op.AND,)],
        [(Op.PUSH,), (Op.PUSH,)],
        [SET_TRUE, (Op.AND_LEFT, 0, 0, 0, 0, 0, 3), (Op.AND_LEFT, 0, 0, 0, 0, 0, 3)],
        [(Op.EQUAL, 0, Operand.PUSHED, Operand.NULL)],
        [(Op.LESS, 0, Operand.NULL, Operand.PUSHED)],
        [(Op.CONTAINS, 0, Operand.PUSHED, Operand.TEXT)],
        [(Op.SKIP_NULL, 0, Operand.PUSHED, 0, 0, 0, 1)],
    ],
)
def test_a_wrong_stack_is_an_error(code: list[tuple[int, ...]], kernels: Bodies) -> None:
    made = kernels.sql92.Program(assemble(*code))
    assert made.evaluate({"a": "x"}) == ERROR
    assert made.errors == 1
    assert made.fault({"a": "x"}) == (len(code) - 1)


def test_changed_programs_are_refused_or_judged_alike() -> None:
    random = Random(11)
    originals = [
        compiled(expression)
        for expression in (
            "n > 50 AND color IN ('red', 'blue')",
            "NOT (a = '1' OR b BETWEEN 1 AND 2.5) AND (c = 1) = (d CONTAINS 'x')",
            "a > -(b = 1) OR a IS NOT NULL AND b",
        )
    ]
    properties = {"n": "51", "color": "red", "a": "1", "b": "2", "c": "1", "d": "xx"}
    accepted = 0
    for _ in range(4000):
        content = bytearray(random.choice(originals))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(content))
            content[at] = random.choice((0, 1, 2, 7, 255, content[at] ^ 1 << random.randrange(8)))
        outcomes = []
        for body in (NATIVE, REFERENCE):
            try:
                made = body.sql92.Program(bytes(content))
            except ValueError as error:
                outcomes.append(str(error))
            else:
                outcomes.append((made.names, made.evaluate(properties), made.fault(properties)))
        assert outcomes[0] == outcomes[1], bytes(content)
        accepted += not isinstance(outcomes[0], str)
    assert accepted > 500


def test_arguments(kernels: Bodies) -> None:
    made = program("a = 1", kernels)
    with pytest.raises(TypeError):
        made.evaluate_stored("a\x011")
    with pytest.raises(AttributeError):
        made.evaluate(None)
    with pytest.raises(TypeError, match="property a must be str, not bytes"):
        made.evaluate({"a": b"1"})
    with pytest.raises(ValueError, match="count is negative"):
        made.count_errors(-1)
    assert made.evaluate({"a": None}) == NULL


def test_a_mapping_that_evaluates_the_same_program(kernels: Bodies) -> None:
    """The evaluation inside happens while the values of the first are being collected."""
    made = program("a = '1' AND (b = '2' OR c = '3')", kernels)

    class Asking(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            assert made.evaluate({"a": "9"}) == FALSE
            return {"a": "1", "b": "x", "c": "3"}[name] + ""

    assert made.evaluate(Asking()) == TRUE


def test_threads_share_a_program() -> None:
    made = program("a = '1' AND (b = '2' OR c = '3')", NATIVE)
    wrong = []

    def ask(value: str) -> None:
        for _ in range(2000):
            verdict = made.evaluate_stored(f"a\x011\x02b\x01{value}\x02c\x01{value}".encode())
            if verdict != (value in "23"):
                wrong.append(value)

    threads = [threading.Thread(target=ask, args=(value,)) for value in "1234"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
