"""The messages of ``rocketstore bench``: as a stock Java producer sends them."""

from __future__ import annotations

import random

from rocketstore.message import Message

TOPICS = 16
QUEUES = 4
_SEED = 20
_BORN_TIMESTAMP = 1_760_000_000_000
_POOL_NBYTES = 1 << 20


class Messages:
    """Messages of 16 topics with 4 queues each, by number.

    Parameters
    ----------
    body_nbytes : int
        Bytes of each body, taken from random bytes that are the same in every run.
    """

    def __init__(self, body_nbytes: int) -> None:
        self.body_nbytes = body_nbytes
        self._pool = random.Random(_SEED).randbytes(_POOL_NBYTES + body_nbytes)

    @staticmethod
    def topic(number: int) -> str:
        """Topic of message ``number``."""
        return f"bench-topic-{number % TOPICS:02d}"

    @staticmethod
    def key(number: int) -> str:
        """The only key of message ``number``."""
        return f"order-{number:08d}"

    def body(self, number: int) -> bytes:
        """Body of message ``number``."""
        at = number * 97 % _POOL_NBYTES
        return self._pool[at : at + self.body_nbytes]

    def make(self, number: int) -> Message:
        """Return a new object of message ``number``."""
        return Message(
            self.topic(number),
            self.body(number),
            queue_id=number // TOPICS % QUEUES,
            properties={
                "KEYS": self.key(number),
                "UNIQ_KEY": f"C0A801171F2A5FFD2B27{number:012X}",
                "WAIT": "true",
                "TAGS": f"Tag{number % 8}",
            },
            born_timestamp=_BORN_TIMESTAMP + number,
            born_host="10.1.2.3:40321",
        )

    def some(self, first: int, count: int) -> list[Message]:
        """Return new objects of ``count`` messages."""
        return [self.make(number) for number in range(first, first + count)]
