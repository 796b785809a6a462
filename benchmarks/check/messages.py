"""Messages as their real producers make them."""

from __future__ import annotations

import random
from collections.abc import Callable

from rocketstore import Message, MessageBatch

TOPIC_COUNT = 16
QUEUE_COUNT = 4
#: One message for each queue.
ROUND = TOPIC_COUNT * QUEUE_COUNT
SIZES = {"100B": 100, "1KiB": 1024, "4KiB": 4096}
BORN = 1_700_000_000_000
BORN_HOST = "10.20.30.40:50123"
GROUP = "bench-group"
_BODY = random.Random(20261127).randbytes(8192)

Maker = Callable[[int, int], Message]


def topic_of(number: int) -> str:
    """Return the topic of a message."""
    return f"TopicTest{number // QUEUE_COUNT % TOPIC_COUNT:02}"


def key_of(number: int) -> str:
    """Return the KEYS of a message."""
    return f"order-{number:08}"


def unique_key_of(number: int) -> str:
    """Return the UNIQ_KEY that the client makes."""
    return f"0A141E28000A2A9F00007F{number:010X}"


def body_of(number: int, nbytes: int) -> bytes:
    """Return a body of its own."""
    start = number % (len(_BODY) - nbytes)
    return _BODY[start : start + nbytes]


def stock_properties(number: int) -> dict[str, str]:
    """Return what a Java producer with a key and a tag sends, as it sends it."""
    return {
        "KEYS": key_of(number),
        "UNIQ_KEY": unique_key_of(number),
        "WAIT": "true",
        "TAGS": f"Tag{number % 5}",
    }


def stock(number: int, nbytes: int) -> Message:
    """Return a Java producer's message."""
    return Message(
        topic_of(number),
        body_of(number, nbytes),
        queue_id=number % QUEUE_COUNT,
        born_timestamp=BORN + number,
        born_host=BORN_HOST,
        properties=stock_properties(number),
    )


def delayed(number: int, nbytes: int) -> Message:
    """Return a Java producer's message with a delay level."""
    return _with(stock(number, nbytes), {"DELAY": "3"})


def retried(number: int, nbytes: int) -> Message:
    """Return the message that a broker stores when a consumer sends one back."""
    message = _with(
        stock(number, nbytes),
        {
            "RETRY_TOPIC": topic_of(number),
            "ORIGIN_MESSAGE_ID": f"0A141E2800002A9F{number:016X}",
            "CONSUME_START_TIME": f"{BORN + number}",
            "MIN_OFFSET": "0",
            "MAX_OFFSET": f"{number + 1000}",
        },
    )
    message.topic, message.queue_id, message.reconsume_times = f"%RETRY%{GROUP}", 0, 1
    return message


def half(number: int, nbytes: int) -> Message:
    """Return the first half of a transaction, as a broker stores it."""
    message = _with(
        stock(number, nbytes),
        {
            "TRAN_MSG": "true",
            "PGROUP": GROUP,
            "REAL_TOPIC": topic_of(number),
            "REAL_QID": f"{number % QUEUE_COUNT}",
        },
    )
    message.topic, message.queue_id = "RMQ_SYS_TRANS_HALF_TOPIC", 0
    return message


def _with(message: Message, properties: dict[str, str]) -> Message:
    message.properties.update(properties)
    return message


def many(count: int, nbytes: int, make: Maker = stock) -> list[Message]:
    """Return ``count`` messages of all queues in turn."""
    return [make(number, nbytes) for number in range(count)]


def batch(count: int, nbytes: int) -> MessageBatch:
    """Return a Java producer's batch: one queue; the client gives each message its UNIQ_KEY."""
    return MessageBatch(
        (
            Message(topic_of(0), body_of(number, nbytes), properties=stock_properties(number))
            for number in range(count)
        ),
        topic=topic_of(0),
        born_timestamp=BORN,
        born_host=BORN_HOST,
        properties={"WAIT": "true"},
    )
