"""SQL92 filters over one message of ten properties: as a dict, and as a record stores them.

The expressions are those whose cost in RocketMQ's own evaluator was measured: 19 to 51 ns on a warm
JVM with the properties already in a map, 1,200 ns and more for an error. A call from Python is
part of the times here; a kernel that reads records calls ``rs_sql92_evaluate`` without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rocketstore
from rocketstore import kernels
from rocketstore.filter.sql92.parser import Parser
from rocketstore.query.arrow_scan import LogRead
from rocketstore.sql92_program import Verdict
from rocketstore.status import RecordFlags
from support.kernel_bodies import Bodies

BODIES = pytest.mark.parametrize("body", ["native", "reference"])
PROPERTIES = {
    "UNIQ_KEY": "0A0000010001000000000000000000FF",
    "KEYS": "order-1234567",
    "TAGS": "tag1",
    "WAIT": "true",
    "CLUSTER": "DefaultCluster",
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
    "n": "77",
    "color": "blue",
    "price": "12.75",
}
EXPRESSIONS = {
    "n > 50 AND color IN ('red', 'blue')": Verdict.TRUE,
    "TAGS = 'tag1' OR n BETWEEN 10 AND 20": Verdict.TRUE,
    "NOT (color = 'red') AND n <> 7": Verdict.TRUE,
    "price >= 2.5": Verdict.TRUE,
    "color > 5": Verdict.ERROR,
}
CASES = pytest.mark.parametrize(("expression", "verdict"), EXPRESSIONS.items())


def compiled(expression: str, body: str) -> Any:
    program = Parser(expression, text_search=True, strict=True).parse().code.program()
    return Bodies(body).sql92.Program(program)


@BODIES
@CASES
def test_dict(benchmark: Any, body: str, expression: str, verdict: Verdict) -> None:
    assert benchmark(compiled(expression, body).evaluate, PROPERTIES) == verdict


@BODIES
@CASES
def test_stored(benchmark: Any, body: str, expression: str, verdict: Verdict) -> None:
    stored = Bodies(body).message.encode_properties(PROPERTIES, True)
    assert benchmark(compiled(expression, body).evaluate_stored, stored) == verdict


@pytest.mark.parametrize("count", [1, 10, 100])
def test_parse(benchmark: Any, count: int) -> None:
    expression = " OR ".join(f"(n{number} > 50 AND color = 'c{number}')" for number in range(count))
    benchmark(lambda: Parser(expression, text_search=True, strict=True).parse().code.program())


# --- Scans ----------------------------------------------------------------------------------------

COUNT = 200_000
CHECK_CRC = int(RecordFlags.CHECK_BODY_CRC)
#: Expressions, and whether they pass anything.
SCANS = {
    "n > 50 AND color IN ('red', 'blue')": COUNT // 2,
    "n > 1000 AND color IN ('red', 'blue')": 0,
    "color > 5": 0,
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketstore.DefaultMessageStore]:
    """Messages of ten properties and bodies of 100 bytes; every second one has an ``n`` of 77."""
    root = tmp_path_factory.mktemp("sql92") / "store"
    with rocketstore.open(
        root, "x", mapped_file_size_commit_log=128 << 20, message_index_enable=False
    ) as store:
        for number in range(COUNT):
            properties = PROPERTIES | {"n": "77" if number % 2 else "7"}
            assert store.put("T", b"x" * 100, properties=properties).ok
        yield store


def positions(store: rocketstore.DefaultMessageStore, chosen: Any) -> int:
    """Walk the log as ``scan`` does, without making messages; return how many pass."""
    select = kernels.passes_select.SelectPass(filter=chosen, capacity=1 << 20)
    for _ in LogRead(store.reader.log, select, 0, store.max_physical_offset, "fail", CHECK_CRC):
        pass
    return len(select.take())


def test_walk(benchmark: Any, stored: rocketstore.DefaultMessageStore) -> None:
    """The walk without a filter, which each scan of the next test begins with."""
    assert benchmark(positions, stored, None) == COUNT
    benchmark.extra_info["message_ns"] = benchmark.stats.stats.min / COUNT * 1e9


@pytest.mark.parametrize(("expression", "count"), SCANS.items())
def test_scan(
    benchmark: Any, stored: rocketstore.DefaultMessageStore, expression: str, count: int
) -> None:
    assert benchmark(positions, stored, stored.filter(expression)) == count
    benchmark.extra_info["message_ns"] = benchmark.stats.stats.min / COUNT * 1e9


def test_scan_of_small_messages(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """``store.scan`` over records of 100 bytes, none of which passes."""
    root = tmp_path_factory.mktemp("small") / "store"
    with rocketstore.open(root, "x", message_index_enable=False) as store:
        for _ in range(COUNT):
            assert store.put("T", b"", properties={"n": "7"}, unique_key=False).ok
        size = store.look_message_by_offset(0).store_size
        benchmark.extra_info["record_nbytes"] = size
        assert benchmark(lambda: sum(1 for _ in store.scan(filter="n > 50"))) == 0
    benchmark.extra_info["messages_per_s"] = COUNT / benchmark.stats.stats.min
