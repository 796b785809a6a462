"""``consumerFilter.json``: filters as brokers register, store and load them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketstore import FilterSyntaxError
from rocketstore.config_managers import ConsumerFilterManager
from rocketstore.filter.bloom_filter import BloomFilter

NOW = 1_700_000_000_000


def test_consumer_filters(tmp_path: Path) -> None:
    now = [NOW]
    manager = ConsumerFilterManager(tmp_path, clock=lambda: now[0])
    manager.register("T", "alive", "a > 5", client_version=7)
    manager.register("T", "dead", "a > 6")
    now[0] += 1000
    manager.un_register("dead")
    manager.persist()
    now[0] += 60_000
    again = ConsumerFilterManager(tmp_path, clock=lambda: now[0])
    assert again.load()
    alive, dead = again.get("T", "alive"), again.get("T", "dead")
    assert alive is not None
    assert dead is not None
    assert (alive.expression, alive.client_version, alive.born_time) == ("a > 5", 7, NOW)
    assert alive.dead_time == now[0] - 30_000
    assert dead.dead_time == NOW + 1000
    assert alive.bloom_filter_data == manager.filter_data_by_topic["T"]["alive"].bloom_filter_data
    assert again.get("T", "x") is again.get("x", "alive") is None
    again.register("T", "alive", "a > 7")
    now[0] += 24 * 3600 * 1000
    assert list(json.loads(again.encode())["filterDataByTopic"]["T"]["groupFilterData"]) == [
        "alive"
    ]
    with pytest.raises(ValueError, match="needs"):
        again.register("T", "g", "")


def test_only_a_filter_without_a_dead_time_is_given_one(tmp_path: Path) -> None:
    bits = {"bitNum": 112, "bitPos": [1, 2, 3]}
    for born, dead, expected in ((0, 0, NOW - 30_000), (500, 3, 3), (NOW, 0, NOW)):
        manager = ConsumerFilterManager(tmp_path, clock=lambda: NOW)
        data = {"bornTime": born, "deadTime": dead, "bloomFilterData": bits}
        content = {"filterDataByTopic": {"T": {"groupFilterData": {"G": data}}}}
        manager.decode(json.dumps(content))
        found = manager.get("T", "G")
        assert found is not None
        assert found.dead_time == expected


def test_filters_of_another_bloom_filter_are_refused(tmp_path: Path) -> None:
    """Their bits would say no where the message matches. RocketMQ drops the whole file."""
    other = ConsumerFilterManager(tmp_path, bloom_filter=BloomFilter.create(10, 64))
    other.register("T", "g", "a > 5")
    other.persist()
    manager = ConsumerFilterManager(tmp_path)
    assert manager.load()
    assert manager.filter_data_by_topic == {}
    assert manager.refused == {
        ("T", "g"): "it has 4 of 312 bits, and the bloom filter gives 3 of 112"
    }
    assert other.load()
    assert other.refused == {}


def test_filters_with_good_bits_stay_beside_refused_ones() -> None:
    manager = ConsumerFilterManager(Path("."), clock=lambda: NOW)
    good = {"bitNum": 112, "bitPos": [0, 0, 111]}
    wrong: dict[str, Any] = {
        "none": None,
        "fewer": {"bitNum": 112, "bitPos": [1, 2]},
        "no-list": {"bitNum": 112},
        "outside": {"bitNum": 112, "bitPos": [1, 2, 112]},
        "negative": {"bitNum": 112, "bitPos": [-1, 2, 3]},
    }
    groups = {"good": {"bloomFilterData": good}}
    groups |= {name: {"bloomFilterData": data} for name, data in wrong.items()}
    table = {"T": {"groupFilterData": groups}, "U": {"groupFilterData": {"x": {}}}}
    manager.decode(json.dumps({"filterDataByTopic": table}))
    assert {topic: list(kept) for topic, kept in manager.filter_data_by_topic.items()} == {
        "T": ["good"]
    }
    assert set(manager.refused) == {("U", "x"), *(("T", name) for name in wrong)}
    assert list(json.loads(manager.encode())["filterDataByTopic"]) == ["T"]


class Registering:
    """A manager; each registration is one second later than the one before."""

    def __init__(self) -> None:
        self.now = NOW
        self.manager = ConsumerFilterManager(Path("."), clock=lambda: self.now)

    def __call__(self, expression: str, version: int | None, **options: Any) -> tuple[Any, ...]:
        self.now += 1000
        data = self.manager.register("T", "g", expression, client_version=version, **options)
        assert data is self.manager.get("T", "g")
        return data.expression, data.client_version, data.born_time, data.dead


def test_newer_subscriptions_replace_a_filter() -> None:
    register = Registering()
    first = register("a > 1", 5)
    assert first == ("a > 1", 5, NOW + 1000, False)
    # Older ones, and those of the same version, change nothing.
    assert register("a > 2", 4) == first
    assert register("a > 2", 5) == first
    # A newer one of the same expression keeps its time of birth: the bit maps still apply.
    assert register("a > 1", 6) == ("a > 1", 6, NOW + 1000, False)
    assert register("a > 2", 7) == ("a > 2", 7, NOW + 5000, False)
    # Without a version it is newer than any.
    assert register("a > 3", None)[1] == NOW + 6000
    assert register("a > 4", 2**50)[1] == 2**50
    assert register("a > 5", None)[:2] == ("a > 5", 2**50 + 1)


def test_a_filter_is_alive_again_by_its_own_version_or_a_newer_one() -> None:
    register = Registering()
    register("a > 1", 5)
    for version, dead in ((4, True), (5, False)):
        register.manager.un_register("g")
        assert register("a > 1", version)[3] is dead
    register.manager.un_register("g")
    assert register("a > 1", 6) == ("a > 1", 6, NOW + 1000, False)


def test_a_filter_is_born_after_what_was_dispatched_without_it() -> None:
    register = Registering()
    assert register("a > 1", 5, born_after=2**50)[2] == 2**50
    assert register("a > 2", 6, born_after=7)[2] == NOW + 2000


def test_other_bits_make_a_filter_a_new_one() -> None:
    register = Registering()
    register("a > 1", 5)
    data = register.manager.get("T", "g")
    assert data is not None
    assert data.bloom_filter_data is not None
    data.bloom_filter_data.bit_pos[0] ^= 1
    assert register("a > 1", 6)[2] == NOW + 2000


def test_an_expression_that_is_refused_removes_the_filter() -> None:
    register = Registering()
    register("a > 1", 5)
    assert register("a >", 5)[0] == "a > 1"
    with pytest.raises(FilterSyntaxError):
        register("a >", 6)
    assert register.manager.get("T", "g") is None
    with pytest.raises(FilterSyntaxError):
        register("a >", 7)
    assert register.manager.get("T", "g") is None
    with pytest.raises(ValueError, match="type of a filter"):
        register.manager.register("T", "g", "a", "TAG")


def test_the_dialect_decides_what_is_refused() -> None:
    old = ConsumerFilterManager(Path("."), broker_version="4.9.8")
    assert old.register("T", "g", "CONTAINS = 'x'").expression == "CONTAINS = 'x'"
    with pytest.raises(FilterSyntaxError):
        ConsumerFilterManager(Path(".")).register("T", "g", "CONTAINS = 'x'")


def test_all_filters_made_younger() -> None:
    register = Registering()
    register("a > 1", 5)
    register("a > 2", 6)
    dead = register.manager.register("U", "g", "b = 1")
    register.manager.un_register("g")
    register("a > 2", 7)
    register.manager.make_all_younger(NOW + 1500)
    alive = register.manager.get("T", "g")
    assert alive is not None
    assert (alive.born_time, alive.dead_time) == (NOW + 2000, 0)
    assert (dead.born_time, dead.dead_time) == (NOW + 2000, NOW + 2000)
    register.manager.make_all_younger(2**50)
    assert (alive.born_time, alive.dead) == (2**50, False)
    assert (dead.born_time, dead.dead_time) == (2**50, 2**50)
