"""Filters in every way to read: the same messages as asking the filter for each one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import (
    CorruptMessageError,
    FilterSyntaxError,
    FilterWarning,
    GetMessageStatus,
    Sql92Filter,
    StoreClosedError,
    TagFilter,
)
from rocketstore.query import selected_scan
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

COUNT = 600
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16384,
    "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "broker_version": "5.3.3",
}
EXPRESSIONS = (
    "n > 50 AND color IN ('red', 'blue')",
    "n BETWEEN 10 AND 20 OR TAGS = 'A'",
    "color > 5",
    "missing IS NULL AND n = 7",
    "color STARTSWITH 'r'",
    "1 = 2",
    "TRUE",
)


def fill(root: Path, count: int = COUNT, **options: Any) -> None:
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    with rocketstore.open(root, "a", clock=lambda: next(ticks), **OPTIONS, **options) as store:
        for n in range(count):
            properties = {"n": str(n % 100), "color": ("red", "blue", "5", "")[n % 4]}
            store.put(
                "T" if n % 3 else "U", b"body %d" % n, n % 2, "A" if n % 5 else "B", f"k{n % 50}",
                properties=properties if n % 11 else None,
            )  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filtered") / "store"
    fill(path)
    return path


@pytest.fixture(params=["native", "reference"])
def store(
    root: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[rocketstore.DefaultMessageStore]:
    """An open store whose kernels that evaluate filters are those of one body."""
    body: Bodies = {"native": NATIVE, "reference": REFERENCE}[request.param]
    for module in ("passes_select", "arrow", "consume_queue", "sql92"):
        monkeypatch.setattr(f"rocketstore.kernels.{module}", getattr(body, module), raising=False)
    with rocketstore.open(root) as opened:
        yield opened


def offsets(messages: Any) -> list[int]:
    return [message.physical_offset for message in messages]


def pulled(store: Any, made: Any, topic: str, queue_id: int) -> list[int]:
    """All messages of a queue that pulls return, by the method itself and as a call answers."""
    found: list[int] = []
    # Native kernels answer plain calls themselves; the method does without them.
    pull = type(store).get_message
    at, calls = 0, (store.get_message, partial(getattr(pull, "__wrapped__", pull), store))
    while True:
        first, second = [call("g", topic, queue_id, at, 7, filter=made) for call in calls]
        assert first[:4] == second[:4]
        assert offsets(first.messages) == offsets(second.messages)
        found += offsets(first.messages)
        if first.status not in (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE):
            return found
        at = first.next_begin_offset


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_way_gives_what_matches(store: Any, expression: str) -> None:
    judge = Sql92Filter(expression)
    everything = list(store.scan())
    chosen = [m for m in everything if judge.matches(m)]
    wanted, errors = offsets(chosen), judge.errors
    ways: dict[str, Callable[[Any], Any]] = {
        "scan": lambda f: store.scan(filter=f),
        "queues": lambda f: store.scan(filter=f, records="queues"),
        "find": lambda f: store.find(filter=f),
        "tail": lambda f: store.tail(start=0, filter=f, timeout_s=0),
    }
    for name, way in ways.items():
        made = Sql92Filter(expression)
        assert offsets(way(made)) == wanted, name
        assert made.errors == errors, name
        assert offsets(way(expression)) == wanted, name
    made = Sql92Filter(expression)
    table = store.scan_arrow("core", filter=made).read_all()
    assert table.column("physicalOffset").to_pylist() == wanted
    assert made.errors == errors
    for topic, queue_id in (("T", 0), ("T", 1), ("U", 0), ("U", 1)):
        own = [m for m in chosen if (m.topic, m.queue_id) == (topic, queue_id)]
        assert pulled(store, Sql92Filter(expression), topic, queue_id) == offsets(own)
        assert pulled(store, expression, topic, queue_id) == offsets(own)


def test_with_other_conditions(store: Any) -> None:
    expression = "n > 50 AND color = 'red'"
    judge = Sql92Filter(expression)
    everything = [m for m in store.scan() if judge.matches(m)]
    middle = 1_700_000_000_000 + COUNT * 500
    end = everything[len(everything) // 2].physical_offset
    for options, passes in (
        ({"topics": ["U"]}, lambda m: m.topic == "U"),
        ({"topics": []}, lambda m: False),
        ({"begin": middle}, lambda m: m.store_timestamp >= middle),
        ({"end": middle}, lambda m: m.store_timestamp < middle),
        ({"begin": 2**80}, lambda m: False),
        ({"end": -(2**80)}, lambda m: False),
        ({"begin": -(2**80), "end": 2**80}, lambda m: True),
        ({"stop": end}, lambda m: m.physical_offset < end),
        ({"start": end}, lambda m: m.physical_offset >= end),
    ):
        wanted = offsets(filter(passes, everything))
        assert offsets(store.scan(filter=expression, **options)) == wanted, options
    found = store.find(topic="T", key="k7", filter=expression)
    assert offsets(found) == offsets(m for m in everything if m.topic == "T" and m.keys == "k7")
    found = store.find(tags="B", filter=expression)
    assert offsets(found) == offsets(m for m in everything if m.tags == "B")
    tailed = store.tail(start=0, topics=["U"], filter=expression, timeout_s=0)
    assert offsets(tailed) == offsets(m for m in everything if m.topic == "U")
    for wrong in ({"begin": "now"}, {"topics": "T"}, {"start": 1.5}):
        with pytest.raises(TypeError):
            list(store.scan(filter=expression, **wrong))


def test_other_filters(store: Any) -> None:
    """A filter with RocketMQ's two methods is asked for each message."""
    asked: list[Any] = []

    class Odd:
        def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any = None) -> bool:
            asked.append(tags_code)
            return ext is None

        def is_matched_by_commit_log(self, message: Any) -> bool:
            return bool(message.queue_id)

    everything = list(store.scan())
    odd = [m for m in everything if m.queue_id]
    assert offsets(store.scan(filter=Odd())) == offsets(odd)
    assert set(asked) == {NATIVE.message.string_hash_code(tag) for tag in (b"A", b"B")}
    tagged = offsets(m for m in everything if m.tags == "B")
    for given in (TagFilter("B"), TagFilter("B", exact=True)):
        assert offsets(store.scan(filter=given)) == tagged
        assert offsets(store.find(filter=given)) == tagged
        assert offsets(store.tail(start=0, filter=given, timeout_s=0)) == tagged
    keyed = store.find(topic="T", key="k7", filter=TagFilter("A"))
    assert offsets(keyed) == offsets(m for m in everything if (m.topic, m.keys) == ("T", "k7"))
    pull = partial(store.get_message, "g", "T", 0, 0)
    for wrong in (5, object(), ["n > 5"], b"n > 5"):
        for call in (store.scan, store.find, pull, store.tail, store.scan_arrow):
            with pytest.raises(TypeError, match="filter must be"):
                call(filter=wrong)
    with pytest.raises(TypeError, match="str or a Sql92Filter, not TagFilter"):
        store.scan_arrow(filter=TagFilter("A"))


class Subclass(Sql92Filter):
    """A filter of one's own; kernels must not pass its method by."""

    def is_matched_by_commit_log(self, message: Any) -> bool:
        """Return whether the filter does not match."""
        return not self.matches(message)


def test_a_subclass_is_asked(store: Any) -> None:
    expression = "n > 50"
    judge = Sql92Filter(expression)
    others = [m for m in store.scan() if not judge.matches(m)]
    made = Subclass(expression)
    assert offsets(store.scan(filter=made)) == offsets(others)
    own = [m for m in others if (m.topic, m.queue_id) == ("T", 0)]
    found = store.get_message("g", "T", 0, 0, 32, filter=made)
    assert offsets(found.messages) == offsets(own)[:32]


# --- The store's filters --------------------------------------------------------------------------


def test_filters_are_kept(store: Any) -> None:
    made = store.filter("n > 1")
    assert made is store.filter("n > 1")
    assert made is not store.filter("n > 1", strict=True)
    assert made.broker_version == "5.3.3"
    for number in range(100):
        store.filter(f"n > {number + 2}")
    assert store.filter("n > 1") is not made
    with ThreadPoolExecutor(8) as pool:
        texts = [f"n > {number % 120}" for number in range(4000)]
        assert [f.expression for f in pool.map(store.filter, texts)] == texts


def test_the_dialect_is_the_store_s(tmp_path: Path) -> None:
    options = {**OPTIONS, "broker_version": "4.9.8"}
    with rocketstore.open(tmp_path / "old", "x", **options) as store:
        store.put("T", b"", properties={"CONTAINS": "5"})
        assert len(list(store.scan(filter="CONTAINS = 5"))) == 1
        with pytest.warns(FilterWarning):
            assert not list(store.scan(filter="a CONTAINS 'x'"))
    with rocketstore.open(tmp_path / "new", "x", **OPTIONS) as store:
        with pytest.raises(FilterSyntaxError):
            store.filter("CONTAINS = 5")
        store.filter("a CONTAINS 'x'", strict=True)
    with pytest.raises(StoreClosedError):
        store.filter("n > 1")
    with pytest.raises(StoreClosedError):
        store.get_message("g", "T", 0, 0, filter="n > 1")


def test_a_warning_names_the_caller_once(store: Any) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            store.get_message("g", "T", 0, 0, filter="n = 5 garbage")
            list(store.scan(filter="n = 5 garbage"))
    assert [(one.category, one.filename) for one in found] == [(FilterWarning, __file__)]


def test_bad_expressions_are_refused_by_the_call(store: Any) -> None:
    for call in (
        lambda: store.scan(filter="n >"),
        lambda: store.find(filter="n >"),
        lambda: store.tail(filter="n >"),
        lambda: store.scan_arrow(filter="n >"),
        lambda: store.get_message("g", "T", 0, 0, filter="n >"),
        lambda: store.get_message("g", "none", 0, 0, filter="n >"),
    ):
        with pytest.raises(FilterSyntaxError) as caught:
            call()
        assert caught.value.column == 4
    with pytest.raises(FilterSyntaxError, match="strict"):
        store.filter("n = 5 garbage", strict=True)
    with pytest.raises(TypeError, match="expression must be str"):
        store.filter(None)


HOSTILE: dict[str, str] = {
    "depth": "(" * 200_000 + "n = 1" + ")" * 200_000,
    "minus": "-" * 100_001 + "n = 1",
    "length": "n = '" + "x" * (16 * 1024 * 1024) + "'",
    "many ors": " OR ".join(["n = 1"] * 3_000),
    "lone surrogate": "n = '\ud800'",
    "surrogate name": "\ud800 = 1",
    "nul": "n = 1\x00",
    "right to left": "n = '\u202e1'",
    "long number": "n = " + "9" * 100_000,
    "long decimal": "n = 1." + "0" * 100_000 + "1",
    "quotes": "'" * 99_999,
    "comment": "n = 1 /*" + "*" * 100_000,
    "empty": "",
    "blank": " \t\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_expressions_through_each_way_in(root: Path, name: str) -> None:
    """A verdict or a clear error, the same in every way in; never a crash."""
    expression = HOSTILE[name]
    with rocketstore.open(root) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes: list[tuple[str, int]] = []
        for call in (
            lambda: len(list(store.scan(filter=expression, topics=["U"], stop=8000))),
            lambda: len(list(store.find(filter=expression, topic="U", end=1_700_000_030_000))),
            lambda: len(store.get_message("g", "T", 0, 0, 4, filter=expression).messages),
            lambda: store.scan_arrow("queueId", filter=expression, stop=8000).read_all().num_rows,
            lambda: len(list(store.tail(filter=expression, timeout_s=0))),
        ):
            try:
                outcomes.append(("a verdict", call() >= 0))
            except FilterSyntaxError as error:
                outcomes.append((str(error), error.column))
    assert len(set(outcomes)) == 1, outcomes
    said, where = outcomes[0]
    assert len(said) < 1000
    assert 1 <= where <= len(expression) + 1


# --- Damage, and steps ----------------------------------------------------------------------------


def test_steps_do_not_change_what_is_found(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = offsets(store.scan(filter="n > 50"))
    for nbytes in (1, 500, 5000):
        monkeypatch.setattr(selected_scan, "STEP_NBYTES", nbytes)
        assert offsets(store.scan(filter="n > 50")) == wanted
        assert offsets(store.scan(filter="n > 50", records="queues")) == wanted
        assert offsets(store.tail(start=0, filter="n > 50", timeout_s=0)) == wanted


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=str)
def test_damage_is_met_as_without_a_filter(
    tmp_path: Path, body: Bodies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in records that the filter would not let pass."""
    monkeypatch.setattr("rocketstore.kernels.passes_select", body.passes_select, raising=False)
    fill(tmp_path / "store", 200)
    with rocketstore.open(tmp_path / "store") as store:
        messages = list(store.scan())
    victim = messages[100]
    base = victim.physical_offset - victim.physical_offset % 16384
    path = tmp_path / "store" / "commitlog" / f"{base:020}"
    data = bytearray(path.read_bytes())
    data[victim.physical_offset - base + victim.store_size - 60] ^= 0xFF
    data[victim.physical_offset - base + 4] ^= 1
    path.write_bytes(bytes(data))
    judge = Sql92Filter("n > 50 AND color = 'red'")
    wanted = [m for m in messages if judge.matches(m) and m is not victim]
    before = [m for m in wanted if m.physical_offset < victim.physical_offset]
    with rocketstore.open(tmp_path / "store") as store:
        assert offsets(store.scan(filter=judge, on_corruption="skip")) == offsets(wanted)
        assert offsets(store.scan(filter=judge, on_corruption="stop")) == offsets(before)
        found = []
        with pytest.raises(CorruptMessageError):
            found.extend(store.scan(filter=judge))
        assert offsets(found) == offsets(before)
        with pytest.raises(ValueError, match="no record begins"):
            list(store.scan(filter=judge, start=messages[1].physical_offset + 1))
