"""Random SQL92 expressions, properties and stored bytes of properties, for tests and the fuzzer."""

from __future__ import annotations

from random import Random

NAMES = ("a", "b", "n", "color", "TAGS", "$x_1")
TEXTS = (
    *("1", "5", "-5", "+5", "5.0", "2147483648", "-2147483649", "9223372036854775808", "007", ""),
    *("red", "true", "TRUE", "tRuE", "x", "it's", "a\u00e9\U0001f600", "\ufffd", " 5 ", "5L"),
    *("1e400", "-1e-400", "NaN", "-NaN", "Infinity", "-Infinity", "0x1p3", "0x.8P-1074d", "1.f"),
    *(".5e1D", "1e", ".", "-", "+", "\u0665", "\u0e51\u0e52", "\uff11", "\U0001d7cf", "\u00b2"),
    *("0.1", "1e22", "1e23", "123456789012345678901234567890", "4.9e-324", "1_0"),
    *("2.4703282292062328e-324", "\u0665\ufffd"),
    *("9007199254740993", "1.7976931348623159e308", "179769313486231580793e289", "0", "-0", "-0.0"),
    *("3.14159265358979323846", "\u00a05", "5\u3000", "\x005", "5\x7f", "xred", "redx"),
)  # fmt: skip
_INTEGERS = ("0", "1", "5", "5L", "7l", "2147483647", "2147483648", "9223372036854775807",
             "9223372036854775808", "12345678901234567890123", "3")  # fmt: skip
_DECIMALS = ("0.1", ".5", "5.", "5.0", "1e1", "1E+2", "1e-5", "1e400", "0.0", "1e-400", "4.9e-324",
             "00.5", "2.5E0", "0.30000000000000004", "9007199254740993.0")  # fmt: skip
_BLANKS = (" ", "  ", "\t", "\n", "\r\n", "\f", " -- c\n", "/* c */", "/***/", " ")
_ODD = ("#", "\u00a0", "garbage", "LIKE 'x%'", ")", "(", "'", "--", "/*", "NOT", "1", ",", "-",
        "IS", "BETWEEN", "\x0b", "IN (", "AND", "\u212aey", "=")  # fmt: skip


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Maker:
    """Makes one expression: mostly valid, at most so deep."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def word(self, word: str) -> str:
        """A keyword in any case."""
        return self._random.choice((word, word, word.lower(), word.title()))

    def blank(self) -> str:
        random = self._random
        return " " if random.random() < 0.9 else random.choice(_BLANKS)

    def text(self) -> str:
        return _quoted(self._random.choice(TEXTS))

    def unary(self, depth: int) -> str:
        random = self._random
        kind = random.random()
        if kind < 0.5:
            return random.choice(NAMES)
        if kind < 0.62:
            return random.choice(_INTEGERS[:7]) if random.random() < 0.9 else (
                random.choice(_INTEGERS))  # fmt: skip
        if kind < 0.7:
            return random.choice(_DECIMALS)
        if kind < 0.78:
            return self.text()
        if kind < 0.83:
            return self.word(random.choice(("TRUE", "FALSE", "NULL")))
        if kind < 0.88:
            return random.choice(("-", "+", "- ", "+ ")) + self.unary(depth - 1)
        if kind < 0.9:
            return f"{self.word('NOT')} {self.unary(depth - 1)}"
        return f"({self.expression(depth - 1)})" if depth > 0 else "b"

    def comparison(self, depth: int) -> str:
        random = self._random
        left, blank = self.unary(depth), self.blank()
        kind = random.random()
        negated = f"{self.word('NOT')} " if random.random() < 0.3 else ""
        if kind < 0.35:
            return f"{left}{blank}{random.choice(('=', '<>'))}{blank}{self.unary(depth)}"
        if kind < 0.6:
            order = random.choice((">", ">=", "<", "<="))
            return f"{left}{blank}{order}{blank}{self.unary(depth)}"
        if kind < 0.7:
            low, high = self.unary(depth), self.unary(depth)
            return f"{left} {negated}{self.word('BETWEEN')} {low} {self.word('AND')}{blank} {high}"
        if kind < 0.8:
            texts = ",".join(self.text() for _ in range(random.choice((1, 2, 3, 12))))
            return f"{left} {negated}{self.word('IN')}{blank}({texts})"
        if kind < 0.88:
            search = self.word(random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
            return f"{left} {negated}{search} {self.text()}"
        if kind < 0.95:
            return f"{left} {self.word('IS')} {negated}{self.word('NULL')}"
        return left

    def expression(self, depth: int) -> str:
        random = self._random
        parts = [self.comparison(depth)]
        while random.random() < 0.4 and len(parts) < 6:
            joint = self.word(random.choice(("AND", "OR", "OR", "AND", "=", "<>", ">")))
            parts += [joint, self.comparison(depth)]
        return self.blank().join(parts)


def random_expression(random: Random) -> str:
    """Return an expression; a few have odd characters or tokens, or lack some."""
    made = _Maker(random).expression(random.choice((0, 1, 1, 2, 3)))
    if random.random() < 0.15:
        at = random.randrange(len(made) + 1)
        odd = random.choice(_ODD)
        made = made[:at] + (f" {odd} " if random.random() < 0.7 else odd) + made[at:]
    if random.random() < 0.05:
        at = random.randrange(len(made))
        made = made[:at] + made[at + random.randint(1, 4) :]
    return made


def random_properties(random: Random) -> dict[str, str]:
    """Return properties, some of them with the names of the expressions."""
    names = [name for name in NAMES if random.random() < 0.7]
    random.shuffle(names)
    return {name: random.choice(TEXTS) for name in names}


def stored(properties: dict[str, str]) -> bytes:
    """Return stored bytes; an empty value is lost when they are read."""
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())


def random_stored(random: Random) -> bytes:
    """Return stored properties, often damaged: truncated, malformed UTF-8, odd separators."""
    content = bytearray(stored(random_properties(random)))
    if random.random() < 0.3:
        content += stored(random_properties(random))
    if random.random() < 0.2:
        content += b"KEYS\x01" + b"k" * random.randrange(200) + b"\x02n\x01" + b"7"
    for _ in range(random.choice((0, 0, 0, 1, 2, 5))):
        if content:
            at = random.randrange(len(content))
            content[at : at + random.choice((0, 1, 1))] = random.choice(
                (b"\x00", b"\x01", b"\x02", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf0\x9f", b"\x80")
            )
    return bytes(
        content[: random.randrange(len(content) + 1)] if random.random() < 0.1 else content
    )
