"""Text that UTF-8 cannot store is refused by every put, and named.

A property, key or tag with half a surrogate pair (``"\\ud800"`` of a JSON text, ``"\\udcff"`` for a
byte of a command line that is no UTF-8) was stored as ``?`` and acknowledged: the consumer got
another value than the producer sent, and a key was found under the wrong name. A message read from
a store and put again had U+FFFD written where its bytes were no UTF-8.
"""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, MessageBatch
from support.appenders import Log, Pair, batch, message, stored
from support.kernel_bodies import Bodies

HALVES = {
    "high": "\ud800",
    "low within": "a\udfffb",
    "a byte of a command line": b"caf\xe9".decode("utf-8", "surrogateescape"),
    "of JSON": json.loads('"order-\\ud83d"'),
    "two halves, not joined": "\ud83d\ude00",
    "the wrong way round": "\ude00\ud83d",
    "after other characters": "é標籤😀" * 9 + "\udc80",
}


def plain(text: str) -> dict[str, Any]:
    """Every way to give ``text`` to ``put``, by the name that the error must hold."""
    return {
        "property p": {"properties": {"p": text}},
        "a property name": {"properties": {text: "v"}},
        "tags": {"tags": text},
        "keys": {"keys": text},
        "a key": {"keys": ["k", text]},
        "unique_key": {"unique_key": text},
        "property WAIT": {"properties": {"WAIT": text}},
        "property DELAY": {"properties": {"a": "b", "DELAY": text}},
        "property INNER_MULTI_DISPATCH": {"properties": {"INNER_MULTI_DISPATCH": f"%LMQ%{text}"}},
    }


@pytest.mark.parametrize("half", HALVES)
def test_a_put_refuses_half_a_character(half: str) -> None:
    pair, text = Pair(), HALVES[half]
    for what, values in plain(text).items():
        kind, error, words = pair.call("put", "T", b"", **values)
        assert (kind, error) == ("raised", "ValueError"), what
        assert words == f"{what} {words_of(what, text)!r} holds half a surrogate pair, which " + (
            "UTF-8 cannot store"
        )
    assert pair.call("put", text, b"")[:2] == ("raised", "ValueError")
    assert pair.native.segments == []
    assert pair.native.appender.put_times == 0


def words_of(what: str, text: str) -> str:
    return f"%LMQ%{text}" if "MULTI" in what else text


@pytest.mark.parametrize("half", HALVES)
def test_every_other_put_refuses_it_as_well(half: str) -> None:
    pair, text = Pair(), HALVES[half]
    odd = {"properties": {"p": text}}
    good = message()
    calls: list[tuple[Any, ...]] = [
        ("put_message", message(**odd)),
        ("put_message", message(properties={text: "v"})),
        ("put_messages", batch(good, message(**odd))),
        ("put_messages", batch(good, **odd)),
        ("put_many", [good, message(**odd)]),
    ]
    for name, argument in calls:
        kind, error, words = pair.call(name, argument)
        assert (kind, error) == ("raised", "ValueError"), name
        assert "half a surrogate pair" in words
    for values in (odd, {"tags": text}, {"keys": [text]}):
        kind, error, words = pair.call("put_columns", "T", array("i", [0, 1]), b"x", **values)
        assert (kind, error) == ("raised", "ValueError")
        assert "half a surrogate pair" in words
    assert pair.native.segments == []


def test_a_name_of_another_class_is_looked_at_too() -> None:
    class Text(str):
        def encode(self, *_: Any) -> bytes:
            return b"fine"

    kind, error, words = Pair().call("put", "T", b"", properties={"p": Text("\ud800")})
    assert (kind, error) == ("raised", "ValueError")
    assert "half a surrogate pair" in words


def test_whole_characters_are_stored_as_ever(kernels: Bodies) -> None:
    log = Log(kernels)
    log.appender.put("T", b"", 0, "\ufffd?", "😀", properties={"é": "\U0010ffff"})
    assert stored(log).properties == {"é": "\U0010ffff", "TAGS": "\ufffd?", "KEYS": "😀"}


STORE_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "put": lambda store, text: store.put("T", b"", tags=text),
    "put_message": lambda store, text: store.put_message(Message("T", properties={"p": text})),
    "put_many": lambda store, text: store.put_many([Message("T", keys=text)]),
    "put_messages": lambda store, text: store.put_messages(
        MessageBatch([Message("T", b"1"), Message("T", b"2", tags=text)], topic="T")
    ),
    "aput": lambda store, text: asyncio.run(store.aput("T", b"", keys=["a", text])),
    "aput_many": lambda store, text: asyncio.run(store.aput_many([Message("T", tags=text)])),
}


@pytest.mark.parametrize("call", STORE_CALLS)
def test_a_store_refuses_it_and_goes_on(call: str, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", start=False) as store:
        for text in HALVES.values():
            with pytest.raises(ValueError, match="half a surrogate pair"):
                STORE_CALLS[call](store, text)
        assert store.put("T", b"good").physical_offset == 0


# --- Records that hold such bytes ---------------------------------------------------------------


FOREIGN = {
    "value": (b"p\x01\xed\xa0\x80\x02", b"p"),
    "value of one byte": (b"a\x01b\x02p\x01caf\xe9\x02", b"p"),
    "name": (b"\xff\x01v\x02", b"\xff"),
    "tags": (b"KEYS\x01k\x02TAGS\x01\xc3\x02", b"TAGS"),
    "last, without a separator": (b"KEYS\x01\x80", b"KEYS"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_record_that_is_no_text_is_read_and_not_put_again(kernels: Bodies, name: str) -> None:
    encoded, odd = FOREIGN[name]
    record = kernels.message.encode_record(
        "T", b"body", 0, 0, 4096, 0, 0, 0, "1.1.1.1:1", 0, "1.1.1.1:1", 0, 0, encoded
    )
    read = kernels.message.StoredMessage(record, 0, 4096, 8192)
    assert read.properties_bytes == encoded
    assert "\ufffd" in "".join([*read.properties, *read.properties.values()])
    log = Log(kernels)
    reported = f"property {odd!r} of the record at offset 4096 is not UTF-8"
    for call in (
        lambda: log.appender.put_message(read),
        lambda: log.appender.put_many([message(), read]),
        lambda: log.appender.put_messages(SimpleNamespace(**vars(batch(message(), read)))),
    ):
        with pytest.raises(ValueError, match=re.escape(reported)):
            call()
    assert log.segments == []


def test_a_record_that_is_text_is_put_again(kernels: Bodies) -> None:
    log = Log(kernels)
    log.appender.put("T", b"body", 0, "\ufffd", "é")
    log.appender.put_message(stored(log))
    again = stored(log, stored(log).store_size)
    assert again.properties_bytes == stored(log).properties_bytes
