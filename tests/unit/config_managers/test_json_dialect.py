"""The JSON that RocketMQ's two fastjson generations write, what people make of it, and hostile
text."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest

from rocketstore.config_managers import json_dialect
from rocketstore.config_managers.json_dialect import JsonDialectError, dumps, loads
from rocketstore.errors import DecodeError
from support.own_process import run_python

READ: dict[str, tuple[bytes, Any]] = {
    "fastjson 1 map of integers": (b'{"a":{0:12,1:9,2:0\n\t\t}}', {"a": {"0": 12, "1": 9, "2": 0}}),
    "fastjson 2 map of integers": (b"{\n\t0:12,\n\t1:9\n}", {"0": 12, "1": 9}),
    "fastjson 2.0.43 empty map": (b'{"a":{\n\t\t\n\t}}', {"a": {}}),
    "negative key": (b"{-1:5}", {"-1": 5}),
    "name without quotes": (b"{offsetTable:{%RETRY%a-b:1}}", {"offsetTable": {"%RETRY%a-b": 1}}),
    "single quotes": (b"{'a':'b\"c'}", {"a": 'b"c'}),
    "byte order mark": (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
    "commas too many": (b'{,"a":1,,"b":[,1,,2,],}', {"a": 1, "b": [1, 2]}),
    "comments": (b'// x\n{"a":/* 1 */2/**/,/*,*/}// y', {"a": 2}),
    "plus": (b'{"a":+1,"b":+1.5}', {"a": 1, "b": 1.5}),
    "odd fractions": (b"[1.,.5,1e3,-2E-1]", [1.0, 0.5, 1000.0, -0.2]),
    "escapes": (rb'["\"\\\/\b\f\n\r\t\'\v"]', ["\"\\/\b\f\n\r\t'\v"]),
    "escaped bytes": (rb'["\x41\xe9"]', ["A\xe9"]),
    "escaped pair": (rb'["\ud83d\ude00","\u001F"]', ["\U0001f600", "\x1f"]),
    "lone surrogate": (rb'["\ud83d","a\udc00b"]', ["\ufffd", "a\ufffdb"]),
    "raw text": ('["é\u2028\x7f\U0001f600"]'.encode(), ["é\u2028\x7f\U0001f600"]),
    "raw control characters": (b'["a\x01\tb\nc"]', ["a\x01\tb\nc"]),
    "no UTF-8": (b'["caf\xe9"]', ["caf\ufffd"]),
    "key given twice": (b'{"a":1,"a":2}', {"a": 2}),
    "literals": (b"[true,false,null]", [True, False, None]),
    "largest numbers": (b"[9223372036854775807,-9223372036854775808]", [2**63 - 1, -(2**63)]),
    "blanks": (b" \t\r\n\x0c{ \n}\n ", {}),
    "scalar": (b"7", 7),
    "reference": (
        b'{"a":{"x":{"k":1}},"b":{"$ref":"$.a.x"}}',
        {"a": {"x": {"k": 1}}, "b": {"k": 1}},
    ),
    "reference forward": (b'{"a":{"$ref":"$.b"},"b":[1]}', {"a": [1], "b": [1]}),
    "reference into an array": (b'[{"k":1},{"$ref":"$[0]"}]', [{"k": 1}, {"k": 1}]),
    "reference by quoted name": (b'{"a.b":{},"c":{"$ref":"$[\'a.b\']"}}', {"a.b": {}, "c": {}}),
    "reference by integer": (b'{0:{},"c":{"$ref":"$[0]"}}', {"0": {}, "c": {}}),
    "reference with escapes": (
        rb'{"%RETRY%a":{"q":1},"b":{"$ref":"$.\\%RETRY\\%a"}}',
        {"%RETRY%a": {"q": 1}, "b": {"q": 1}},
    ),
    "no reference": (b'{"$ref":1}', {"$ref": 1}),
    "no reference either": (b'{"$ref":"$.x","y":1}', {"$ref": "$.x", "y": 1}),
}


@pytest.mark.parametrize(("text", "value"), READ.values(), ids=READ.keys())
def test_what_is_read(text: bytes, value: Any) -> None:
    assert loads(text) == value


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 0, "no value"),
    "blanks alone": (b" \n\t", 3, "no value"),
    "mark alone": (b"\xef\xbb\xbf", 3, "no value"),
    "comment alone": (b"/* x */", 7, "no value"),
    "open comment": (b'{"a":1/* }', 6, "unterminated comment"),
    "truncated object": (b'{"a":1', 6, "expected ',' or '}', found the end of the file"),
    "truncated in a key": (b'{"a', 1, "unterminated string"),
    "truncated after a key": (b'{"a"', 4, "expected ':', found the end of the file"),
    "truncated before a value": (b'{"a":', 5, "expected a value, found the end of the file"),
    "truncated array": (b"[1,", 3, "expected a value, found the end of the file"),
    "truncated escape": (b'["\\', 2, "invalid escape"),
    "truncated unicode escape": (b'["\\u00', 2, "invalid escape"),
    "unknown escape": (b'["\\q"]', 2, "invalid escape"),
    "text after it": (b"{} x", 3, "unexpected text after"),
    "two values": (b"{}{}", 2, "unexpected text after"),
    "no comma": (b'{"a":1 "b":2}', 7, "expected ',' or '}'"),
    "wrong bracket": (b"[1}", 2, "expected ',' or ']'"),
    "zero byte": (b'{"a":\0}', 5, "expected a value"),
    "word": (b'{"a":yes}', 5, "expected a value, found 'yes}'"),
    "number and word": (b"[1x]", 1, "expected a value"),
    "not a number": (b"[NaN]", 1, "expected a value"),
    "infinite": (b"[1e999]", 1, "too large"),
    "long number": (b'{"a":' + b"9" * 5000 + b"}", 5, "a number of 5000 characters"),
    "long fraction": (b"[0." + b"9" * 5000 + b"]", 1, "a number of 5002 characters"),
    "deep arrays": (b"[" * 200_000, 100, "more than 100 nested"),
    "deep objects": (b'{"a":' * 200_000, 500, "more than 100 nested"),
    "deep pairs": (b"[[" * 100_000 + b"]]" * 100_000, 100, "more than 100 nested"),
    "reference to nothing": (b'{"a":{"$ref":"$.b"}}', 5, "has no target"),
    "reference to itself": (b'{"a":{"$ref":"$"}}', 5, "another reference"),
    "references in a ring": (b'{"a":{"x":{"$ref":"$.b"}},"b":{"x":{"$ref":"$.a"}}}', 35, "another"),
    "reference upward": (b'{"a":{"$ref":".."}}', 5, "not a path from the root"),
    "reference to an index outside": (b'[{"$ref":"$[7]"}]', 1, "has no target"),
    "random": (random.Random(1).randbytes(4096), 0, "expected a value"),
}


@pytest.mark.parametrize(("text", "position", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(text: bytes, position: int, reason: str) -> None:
    with pytest.raises(JsonDialectError) as caught:
        loads(text)
    assert (caught.value.position, reason in caught.value.reason) == (position, True), caught.value
    assert isinstance(caught.value, DecodeError)
    assert len(str(caught.value)) < 200
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.position, copy.reason) == (caught.value.position, caught.value.reason)


def test_a_hundred_levels_are_read() -> None:
    assert json.dumps(loads(b"[" * 100 + b"]" * 100)) == "[" * 100 + "]" * 100


def test_every_truncation_and_every_flipped_bit_is_read_or_refused() -> None:
    """Whatever comes out, nothing else than a value or the error of this module."""
    text = rb'{"a":{0:1,"b":[true,null,-1.5e2,"x\u00e9\n"],/*c*/},d:{"$ref":"$.a"}}'
    outcomes = {True: 0, False: 0}
    positions: list[tuple[int, int]] = []
    variants = [text[:end] for end in range(len(text))]
    for at in range(len(text)):
        for bit in range(8):
            changed = bytearray(text)
            changed[at] ^= 1 << bit
            variants.append(bytes(changed))
    for variant in variants:
        try:
            loads(variant)
            outcomes[True] += 1
        except JsonDialectError as error:
            positions.append((error.position, len(variant)))
            outcomes[False] += 1
    assert all(0 <= position <= length for position, length in positions)
    assert outcomes[False] > len(text)
    assert outcomes[True] > 20


LIMITED = """
import resource, sys
from rocketstore.config_managers.json_dialect import JsonDialectError, loads

def cases():
    million = 1 << 20
    yield b"[" + b'{"a":1},' * (3 * million) + b"]"
    yield b'["' + b"a" * (31 * million) + "\\U0001f600".encode() + b'"]'
    yield b'{"a":[' + b"1," * million + b'],"b":[' + b'{"$ref":"$.a"},' * 1000 + b"]}"
    yield b"," * (33 * million)

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for content in cases():
    try:
        loads(content)
        print("read")
    except JsonDialectError as error:
        print(error.reason)
unit = 1 if sys.platform == "darwin" else 1024
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)
"""


@pytest.mark.timeout(300)
def test_work_and_memory_are_bounded() -> None:
    done = run_python(LIMITED)
    assert done.returncode == 0, done.stderr
    *outcomes, grown = done.stdout.splitlines()
    limit = "more than 1500000 values, escapes and comments"
    too_large = f"{33 << 20} bytes are more than {32 << 20}"
    assert outcomes == [limit, "read", limit, too_large]
    # The input itself is up to 33 MiB of it.
    assert int(grown) < 289 << 20


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"b": {"1": 2, "0": 1}, "a": []},
        {'\x00\x1f\x7f é\u2028\U0001f600"\\/': '\x00\x1f\x7f é\u2028\U0001f600"\\/'},
        {"n": [0, -1, 2**63 - 1, 1.5, True, False, None]},
    ],
)
def test_what_is_written_is_plain_json_and_read_again(value: Any) -> None:
    text = dumps(value)
    assert text.isascii()
    assert json.loads(text) == value
    assert loads(text.encode()) == value
    assert "\r" not in text
    assert not text.endswith("\n")


def test_written_keys_are_sorted_and_lines_are_indented_by_tabs() -> None:
    assert dumps({"b": {"x": 1}, "a": []}) == '{\n\t"a":[],\n\t"b":{\n\t\t"x":1\n\t}\n}'


def test_numbers_that_json_does_not_have_are_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps({"a": float("nan")})


def test_limits_are_what_the_largest_tables_need() -> None:
    """70,000 topics as RocketMQ 5 writes them."""
    entry = (
        '\t\t"topic-with-a-name-of-a-length-%06d":{\n\t\t\t"attributes":{},\n\t\t\t"order":false,'
        '\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":16,\n\t\t\t"topicFilterType":"SINGLE_TAG",'
        '\n\t\t\t"topicName":"topic-with-a-name-of-a-length-%06d",\n\t\t\t"topicSysFlag":0,'
        '\n\t\t\t"writeQueueNums":16\n\t\t}'
    )
    assert len(entry % (1, 1)) * 70_000 < json_dialect.MAX_NBYTES
    assert json_dialect.MAX_COST > (3 + 3 + 7) * 70_000
