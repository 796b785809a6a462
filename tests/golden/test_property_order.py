"""The order of properties in records that a broker wrote again: that of its hash map."""

from __future__ import annotations

import base64
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rocketstore.dialect import Dialect
from support.kernel_bodies import Bodies

ENGINE = Path(__file__).resolve().parent / "engine"
NAMES = sorted(path.parent.name for path in ENGINE.glob("*/after.ndjson.xz"))
#: An op record is made from nothing; in 5.x its two properties are appended one after the other.
OP_PROPERTIES = {"WAIT": "true", "TAGS": "d"}
#: Records of each store, those of the broker and those that the client sent through it.
RECORDS = {
    "delay-4.9.8": 82,
    "delay-5.3.3": 84,
    "filter-4.9.8": 131,
    "retry-4.9.8": 124,
    "retry-5.3.3": 229,
    "timer-5.3.3": 74,
    "timer-5.5.0": 74,
    "transaction-4.9.8": 204,
    "transaction-5.3.3": 174,
    "transaction-late-op-5.3.3": 200,
}


def stored_properties(name: str, kernels: Bodies) -> Iterator[bytes]:
    with lzma.open(ENGINE / name / "after.ndjson.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "raw" in row:
                raw = base64.b64decode(row["raw"])
                at = row["physicalOffset"]
                message = kernels.message.StoredMessage(raw, 0, at, at + len(raw))
                yield message.properties_bytes


def dialect(name: str) -> Dialect:
    about = json.loads((ENGINE / name / "about.json").read_text(encoding="utf-8"))
    return Dialect.for_version(about["rocketmq"])


def shuffled(properties: dict[str, str], buckets: int, kernels: Bodies) -> dict[str, str]:
    """Other orders in which they may have been put into the map: names that share a bucket keep
    theirs."""
    order = kernels.message.hash_map_order
    names = list(properties)
    Random(len(names)).shuffle(names)
    for first in properties:
        for other in list(properties)[list(properties).index(first) + 1 :]:
            shares = order([other, first], buckets) != order([first, other], buckets)
            at, later = names.index(first), names.index(other)
            if shares and later < at:
                names[at], names[later] = other, first
    return {name: properties[name] for name in names}


def test_every_recorded_store_is_here() -> None:
    assert sorted(RECORDS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_properties_written_again_are_the_same_bytes(name: str, kernels: Bodies) -> None:
    """The parts of a broker parse properties into a hash map and write them from it."""
    rules = dialect(name)
    counts: Counter[str] = Counter()
    for recorded in stored_properties(name, kernels):
        properties = kernels.message.parse_properties(recorded)
        if properties == OP_PROPERTIES and rules.version >= (5, 0, 0):
            assert recorded == b"WAIT\x01true\x02TAGS\x01d\x02"
            counts["op"] += 1
            continue
        for given in (properties, shuffled(properties, rules.property_buckets, kernels)):
            written = kernels.message.rewritten_properties(
                given, rules.property_buckets, rules.trailing_separator
            )
            assert written == recorded
        assert recorded == kernels.message.reordered_properties(
            recorded, rules.property_buckets, rules.trailing_separator
        )
        other = kernels.message.rewritten_properties(
            properties, 16 if rules.property_buckets == 128 else 128, rules.trailing_separator
        )
        counts["differs in the other line"] += other != recorded
        counts["written"] += 1
    assert counts["op"] + counts["written"] == RECORDS[name]
    assert counts["differs in the other line"] > 0.9 * counts["written"]
