"""SQL92 filters against RocketMQ: recorded verdicts, bloom filters, and what consumers received."""

from __future__ import annotations

import base64
import json
import lzma
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import (
    FilterEvaluationError,
    FilterSyntaxError,
    FilterWarning,
    GetMessageStatus,
    Sql92Filter,
)
from rocketstore.filter.bloom_filter import BloomFilter
from rocketstore.message import StoredMessage
from rocketstore.queues.consume_queue_ext import CqExtUnit
from rocketstore.sql92_program import Verdict
from support.kernel_bodies import Bodies
from support.sql92_cases import stored

HERE = Path(__file__).resolve().parent
FILTERED = HERE / "engine" / "filter-4.9.8"
_ANSWERS = {True: "true", False: "false", None: "null"}
_VERDICTS = {
    Verdict.TRUE: "true",
    Verdict.FALSE: "false",
    Verdict.NULL: "null",
    Verdict.ERROR: "error",
}


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


@pytest.fixture(autouse=True)
def _body(kernels: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters evaluate with one body after the other."""
    monkeypatch.setattr("rocketstore.kernels.sql92", kernels.sql92, raising=False)


def quiet(expression: str, version: str | None = None) -> Sql92Filter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FilterWarning)
        return Sql92Filter(expression, broker_version=version)


def answers(case: dict[str, Any], version: str | None, kernels: Bodies) -> list[str]:
    """Every way to ask one question: the dict, twice, and the stored bytes if they can say it."""
    properties = case["properties"]
    expression, column = case["expression"], 0
    try:
        made = quiet(expression, version)
    except FilterSyntaxError as error:
        return ["parse_error"] if 1 <= error.column <= len(expression) + 1 else ["no column"]
    try:
        found = [_ANSWERS[made.evaluate(properties)]]
    except FilterEvaluationError as error:
        found, column = ["error"], error.column
    assert 1 <= column <= len(expression) if found == ["error"] else column == 0
    assert made.matches(properties) == (found[0] == "true")
    assert made.errors == 2 * (found[0] == "error")
    assert made.unparsed == expression[len(expression) - len(made.unparsed) :]
    program = kernels.sql92.Program(made.program)
    found += [_VERDICTS[program.evaluate(properties)] for _ in range(2)]
    if all(properties.values()):  # an empty value is lost when it is read
        found += [_VERDICTS[program.evaluate_stored(stored(properties))] for _ in range(2)]
    return found


@pytest.mark.parametrize("version", [None, "5.1.2"])
def test_every_recorded_verdict(kernels: Bodies, version: str | None) -> None:
    has_search = version is None
    count = 0
    for case in rows(HERE / "sql92" / "cases.jsonl.xz"):
        wanted = case["verdict"] if has_search else case.get("verdict_4.9", case["verdict"])
        for _ in range(2):
            found = answers(case, version, kernels)
            assert set(found) == {wanted}, (case, found)
        count += 1
    assert count == 2000


def test_every_recorded_bloom_filter() -> None:
    count = 0
    for row in rows(HERE / "sql92" / "bloom.jsonl.xz"):
        count += 1
        if "refused" in row:
            with pytest.raises(ValueError, match="max_error_rate"):
                BloomFilter.create(row["rate"], row["consumers"])
            continue
        bloom = BloomFilter.create(row["rate"], row["consumers"])
        assert (bloom.k, bloom.m) == (row["k"], row["m"])
        every: list[int] = []
        for (group, topic), wanted in zip(row["pairs"], row["positions"], strict=True):
            assert bloom.bit_positions(group, topic) == wanted
            every += wanted
        bit_map = bloom.bit_map(every)
        assert bit_map.hex() == row["bits"]
        assert BloomFilter.is_hit(every, bit_map)
    assert count == 200


def filtered_messages() -> list[StoredMessage]:
    """The messages of the topic that groups filtered."""
    found = []
    for row in rows(FILTERED / "after.ndjson.xz"):
        if "raw" in row:
            raw = base64.b64decode(row["raw"])
            at = row["physicalOffset"]
            found.append(StoredMessage(raw, 0, at, at + len(raw)))
    return [message for message in found if message.topic == "Sql51"]


def test_consumers_received_what_matches() -> None:
    messages = filtered_messages()
    events = list(rows(FILTERED / "client.ndjson.xz"))
    groups = {e["group"]: e["expression"] for e in events if e.get("event") == "subscribed"}
    assert len(groups) == 5
    assert len(messages) == 131
    for group, expression in groups.items():
        received = {
            event["msgId"]
            for event in events
            if event.get("event") == "received" and event["group"] == group
        }
        made = Sql92Filter(expression, broker_version="4.9.8")
        matching = {message.unique_key for message in messages if made.matches(message)}
        assert matching == received
        assert matching == {m.unique_key for m in messages if made.matches(m.properties)}
        assert matching == {m.unique_key for m in messages if made.is_matched_by_commit_log(m)}


def ext_units(archive: tarfile.TarFile, queue_id: int) -> list[CqExtUnit]:
    """The ext units of one queue of the recorded store, which has one file for each."""
    name = f"store/consumequeue_ext/Sql51/{queue_id}/00000000000000000000"
    member = archive.extractfile(name)
    assert member is not None
    data, at, found = member.read(), 0, []
    while at < len(data) and (nbytes := int.from_bytes(data[at : at + 2], "big", signed=True)) > 0:
        numbers = [int.from_bytes(data[at + i : at + i + 8], "big", signed=True) for i in (2, 10)]
        width = int.from_bytes(data[at + 18 : at + 20], "big")
        found.append(CqExtUnit(numbers[0], numbers[1], data[at + 20 : at + 20 + width]))
        at += nbytes
    return found


def test_recorded_bit_maps_let_matching_messages_through() -> None:
    """A unit's bit map may say that a message does not match; then it does not."""
    by_queue: dict[int, list[StoredMessage]] = {}
    for message in filtered_messages():
        by_queue.setdefault(message.queue_id, []).append(message)
    with tarfile.open(FILTERED / "store.tar.xz", "r:xz") as archive:
        config = archive.extractfile("store/config/consumerFilter.json")
        assert config is not None
        table = json.load(config)["filterDataByTopic"]["Sql51"]["groupFilterData"]
        units = {queue_id: ext_units(archive, queue_id) for queue_id in by_queue}
    asked = refused = 0
    for data in table.values():
        plain = Sql92Filter(data["expression"], broker_version="4.9.8")
        bits = data["bloomFilterData"]
        made = plain.of_group(bits["bitPos"], bits["bitNum"], data["bornTime"])
        for queue_id, found in units.items():
            for unit, message in zip(found, by_queue[queue_id], strict=False):
                assert unit.store_timestamp == message.store_timestamp
                asked += 1
                assert plain.is_matched_by_consume_queue(unit.tags_code, unit)
                if not made.is_matched_by_consume_queue(unit.tags_code, unit):
                    refused += 1
                    assert not made.matches(message)
    assert asked > 400
    assert refused > 100


@pytest.mark.parametrize("body", ["native", "reference"])
def test_pulls_give_each_group_what_the_broker_gave_it(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through ``get_message`` and in log order, with the filters of the store's own dialect."""
    for module in ("consume_queue", "passes_select", "sql92"):
        monkeypatch.setattr(
            f"rocketstore.kernels.{module}", getattr(Bodies(body), module), raising=False
        )
    with tarfile.open(FILTERED / "store.tar.xz", "r:xz") as archive:
        archive.extractall(
            tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    events = list(rows(FILTERED / "client.ndjson.xz"))
    groups = {e["group"]: e["expression"] for e in events if e.get("event") == "subscribed"}
    with rocketstore.open(tmp_path / "store") as store:
        assert store.broker_version.startswith("4.9")
        # Native kernels answer plain calls themselves; the method does without them.
        pull = type(store).get_message
        method = getattr(pull, "__wrapped__", pull)
        for group, expression in groups.items():
            received = {
                event["msgId"]
                for event in events
                if event.get("event") == "received" and event["group"] == group
            }
            assert received
            for call in (pull, method) if body == "native" else (method,):
                assert set(pulled(store, call, group, expression)) == received
            scanned = store.scan(topics=["Sql51"], filter=expression)
            assert {message.unique_key for message in scanned} == received


def pulled(store: Any, call: Any, group: str, expression: str) -> Iterator[str]:
    """The unique keys of all messages that pulls of a group return."""
    for queue_id in store.queues("Sql51"):
        at = store.min_offset_in_queue("Sql51", queue_id)
        while at < store.max_offset_in_queue("Sql51", queue_id):
            result = call(store, group, "Sql51", queue_id, at, filter=expression)
            assert (result.status == GetMessageStatus.FOUND) == (len(result.messages) > 0)
            if not result.messages:
                assert result.status == GetMessageStatus.NO_MATCHED_MESSAGE
            yield from (message.unique_key for message in result.messages)
            assert result.next_begin_offset > at
            at = result.next_begin_offset
