"""Numbers for the topics of many records, looked up for a whole batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Array = np.ndarray[Any, Any]


class TopicNumbers:
    """Number topics in order of appearance, for a whole batch of records at a time.

    A known topic is found by a hash of its bytes, and compared; other topics are looked up in a
    dict.
    """

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._hashes = np.empty(0, "u8")
        self._by_hash = np.empty(0, "i8")
        self._texts = np.zeros((0, 0), "u1")
        self._lengths = np.empty(0, "i8")

    def number(self, name: bytes) -> int:
        """Return the number of a topic."""
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number

    def of(self, content: bytes, starts: Array, lengths: Array) -> Array:
        """Return the numbers of the topics at ``starts`` of ``content``."""
        texts = _gather(content, starts, lengths)
        numbers = self._known(texts, lengths)
        unknown = np.flatnonzero(numbers < 0)
        for row in unknown.tolist():
            start = int(starts[row])
            numbers[row] = self.number(content[start : start + int(lengths[row])])
        if len(self.names) > len(self._hashes):
            self._learn()
        return numbers

    def _known(self, texts: Array, lengths: Array) -> Array:
        if not len(self._hashes):
            return np.full(len(texts), -1, "i8")
        place = np.searchsorted(self._hashes, _hashes_of(texts, lengths))
        numbers = self._by_hash[np.minimum(place, len(self._hashes) - 1)]
        width = min(texts.shape[1], self._texts.shape[1])
        same = (self._texts[numbers, :width] == texts[:, :width]).all(axis=1)
        return np.where(same & (self._lengths[numbers] == lengths), numbers, -1)

    def _learn(self) -> None:
        self._lengths = np.array([len(name) for name in self.names], "i8")
        starts = np.concatenate(([0], np.cumsum(self._lengths)[:-1]))
        self._texts = _gather(b"".join(self.names), starts, self._lengths)
        hashes = _hashes_of(self._texts, self._lengths)
        self._by_hash = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._by_hash]


def _gather(content: bytes, starts: Array, lengths: Array) -> Array:
    """Return the texts as rows of bytes, padded with zeros to a multiple of 8."""
    width = -(-int(lengths.max()) // 8) * 8
    column = np.arange(width)
    data = np.frombuffer(content, "u1")
    places = np.minimum(starts[:, None] + column, len(data) - 1)
    return np.asarray(np.where(column < lengths[:, None], data[places], np.uint8(0)))


def _hashes_of(texts: Array, lengths: Array) -> Array:
    hashes = lengths.astype("u8")
    for word in np.ascontiguousarray(texts).view("u8").T:
        mixed = (hashes ^ word) * _MULTIPLIER
        # Ignore the padding, because its length depends on the batch.
        hashes = np.where(word != 0, mixed ^ (mixed >> np.uint64(32)), hashes)
    return hashes
