"""The broker's tables: what each version writes we read, what we write each version reads."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop import catalogue
from interop.config.tables import (
    MANAGERS,
    ConfigDriver,
    Content,
    Random,
    completed,
    filled,
    held,
    known_to,
    loaded,
    ordered,
    read_by,
)
from interop.harness import VERSIONS, line_of
from interop.maven import require_java
from rocketstore.config_managers import ConfigManager, ConsumerFilterManager, ConsumerOffsetManager
from rocketstore.errors import CorruptionError
from rocketstore.filter.bloom_filter import BloomFilter

require_java()
pytestmark = pytest.mark.xdist_group("config")

#: Each version has tables of its own from a seed; `make interop` asks for more of them.
SEEDS = range(int(os.environ.get("ROCKETSTORE_CONFIG_SEEDS", "6")))
#: Tables that held, by version, direction and kind.
HELD: Counter[tuple[str, str, str]] = Counter()
tables = pytest.mark.parametrize("table", MANAGERS)


@pytest.fixture(scope="module", params=VERSIONS)
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConfigDriver]:
    version = request.param
    with ConfigDriver(version, tmp_path_factory.mktemp("config")) as driver:
        yield driver
    held = [
        {
            "table": table,
            "theirs": HELD[version, "theirs", table],
            "ours": HELD[version, "ours", table],
        }
        for table in MANAGERS
    ]
    catalogue.record_tables(version, held)


def ours(table: str, root: Path) -> ConfigManager:
    manager = MANAGERS[table](root)
    assert manager.load()
    return manager


def assert_java_reads(driver: ConfigDriver, table: str, root: Path, content: Content) -> None:
    """Java holds ``content``, and would write it as we then read it."""
    theirs, encoded = driver.load(table, root)
    version = driver.version
    expected = read_by(version, table, loaded(known_to(version, table, content)))
    assert read_by(version, table, ordered(theirs)) == expected
    manager = MANAGERS[table](root)
    manager.decode(encoded)
    assert read_by(version, table, ordered(held(manager))) == read_by(
        version, table, loaded(completed(table, known_to(version, table, content)))
    )


def assert_we_read(table: str, root: Path, content: Content) -> ConfigManager:
    manager = ours(table, root)
    assert ordered(held(manager)) == loaded(completed(table, content))
    return manager


@tables
@pytest.mark.parametrize("seed", SEEDS)
def test_we_read_what_java_writes_and_write_it_for_java(
    driver: ConfigDriver, table: str, seed: int, tmp_path: Path
) -> None:
    content = known_to(driver.version, table, Random((driver.version, seed, table)).content(table))
    assert ordered(driver.persist(table, tmp_path, content)) == ordered(content)
    for _ in range(2):
        manager = assert_we_read(table, tmp_path, content)
        assert manager.problem is None
        manager.persist()
    assert_java_reads(driver, table, tmp_path, completed(table, content))
    HELD[driver.version, "theirs", table] += 1


@tables
@pytest.mark.parametrize("seed", SEEDS)
def test_java_reads_what_we_write(
    driver: ConfigDriver, table: str, seed: int, tmp_path: Path
) -> None:
    content = Random((driver.version, seed, table)).content(table)
    filled(MANAGERS[table], tmp_path, content).persist()
    assert_java_reads(driver, table, tmp_path, content)
    HELD[driver.version, "ours", table] += 1


@tables
def test_many_entries_and_none(driver: ConfigDriver, table: str, tmp_path: Path) -> None:
    for count in (0, 100):
        content = Random(table).content(table, count)
        (tmp_path / "java").mkdir(exist_ok=True)
        driver.persist(table, tmp_path / "java", known_to(driver.version, table, content))
        assert_we_read(table, tmp_path / "java", known_to(driver.version, table, content))
        filled(MANAGERS[table], tmp_path, content).persist()
        assert_java_reads(driver, table, tmp_path, content)


# --- the file before ----------------------------------------------------------------------------

Damage = Callable[[Path, Random], None]


def cut_off(path: Path, random: Random) -> None:
    path.write_bytes(random.shortened(path.read_bytes()))


def emptied(path: Path, random: Random) -> None:
    path.write_bytes(b"")


def gone(path: Path, random: Random) -> None:
    path.unlink()


damages = pytest.mark.parametrize("damage", [cut_off, emptied, gone])


@tables
@damages
def test_our_backup_of_what_java_wrote(
    driver: ConfigDriver, table: str, damage: Damage, tmp_path: Path
) -> None:
    for seed in SEEDS:
        random = Random((driver.version, seed, table, damage.__name__))
        root = tmp_path / str(seed)
        former, latter = (known_to(driver.version, table, random.content(table)) for _ in range(2))
        driver.persist(table, root, former)
        driver.persist(table, root, latter)
        path = MANAGERS[table](root).config_file_path
        backup = path.with_name(path.name + ".bak").read_bytes()
        damage(path, random)
        manager = assert_we_read(table, root, former)
        assert (manager.problem is None) == (damage is gone), f"seed {seed}"
        # What is written now does not put the damaged file in the place of the good one.
        manager.persist()
        assert path.with_name(path.name + ".bak").read_bytes() == backup, f"seed {seed}"
        assert_java_reads(driver, table, root, completed(table, former))


@tables
@damages
def test_javas_backup_of_what_we_wrote(
    driver: ConfigDriver, table: str, damage: Damage, tmp_path: Path
) -> None:
    for seed in SEEDS:
        random = Random((driver.version, seed, table, damage.__name__))
        root = tmp_path / str(seed)
        root.mkdir()
        former, latter = (random.content(table) for _ in range(2))
        filled(MANAGERS[table], root, former).persist()
        filled(MANAGERS[table], root, latter).persist()
        damage(MANAGERS[table](root).config_file_path, random)
        assert_java_reads(driver, table, root, former)


@tables
def test_without_a_backup_a_damaged_file_of_java_is_an_error(
    driver: ConfigDriver, table: str, tmp_path: Path
) -> None:
    random = Random(table)
    driver.persist(table, tmp_path, known_to(driver.version, table, random.content(table)))
    manager = MANAGERS[table](tmp_path)
    cut_off(manager.config_file_path, random)
    with pytest.raises(CorruptionError, match=manager.FILE_NAME):
        manager.load()


# --- what only some know ------------------------------------------------------------------------

UNKNOWN: dict[str, Any] = {
    "ofTomorrow": {"0": [1, None, {"a": "ä\u2028"}], "b": 1.5},
    "ofTheDayAfter": [],
}


def with_unknown(value: Any) -> Any:
    """``value`` with unknown fields in every object that has some of its own."""
    if isinstance(value, list):
        return [with_unknown(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    result = {key: with_unknown(inner) for key, inner in value.items()}
    # Names begin with a small letter in objects; in tables there are names of other kinds.
    return {**result, **UNKNOWN} if OBJECTS & set(value) else result


#: One field of every kind of object.
OBJECTS = {
    *("topicConfigTable", "subscriptionGroupTable", "offsetTable", "filterDataByTopic"),
    *("readQueueNums", "retryQueueNums", "counter", "bornTime", "bitNum"),
}


@tables
def test_fields_that_we_do_not_know_are_kept(
    driver: ConfigDriver, table: str, tmp_path: Path
) -> None:
    content = known_to(driver.version, table, Random(table).content(table))
    driver.persist(table, tmp_path, content)
    path = ours(table, tmp_path).config_file_path
    ours(table, tmp_path).persist()
    document = with_unknown(json.loads(path.read_bytes()))
    assert json.dumps(document).count("ofTomorrow") > (0 if line_of(driver.version) == 4 else 1)
    path.write_text(json.dumps(document), encoding="utf-8")
    for _ in range(2):
        ours(table, tmp_path).persist()
        assert json.loads(path.read_bytes()) == document
    assert_java_reads(driver, table, tmp_path, completed(table, content))


@pytest.mark.parametrize(
    "topic", ["Orders", "%RETRY%a-b|c_d", "a.b.c", "a'b", "[0]", "$", "b\\s", "ä"]
)
def test_one_object_under_two_names(driver: ConfigDriver, topic: str, tmp_path: Path) -> None:
    """The first fastjson writes the second of them as a reference to the first."""
    content = known_to(driver.version, "offsets", Random(topic).content("offsets", 2))
    offsets = {"0": 17, "3": 2**40}
    names = (f"{topic}@from", f"{topic}@to")
    content["offsetTable"][names[0]] = offsets
    driver.persist("offsets", tmp_path, content, share=("offsetTable", *names))
    path = ConsumerOffsetManager(tmp_path).config_file_path
    refers = driver.version in ("4.9.8", "5.1.4", "5.3.3")
    assert (b'"$ref"' in path.read_bytes()) == refers
    content["offsetTable"][names[1]] = offsets
    assert_we_read("offsets", tmp_path, content).persist()
    assert_java_reads(driver, "offsets", tmp_path, completed("offsets", content))


NAMES = (("T", "G"), ("Orders", "ä中\U0001f680"), ("%a|b", "_"))


def test_bits_of_a_filter_are_those_of_java(driver: ConfigDriver, tmp_path: Path) -> None:
    for number, (topic, group) in enumerate(NAMES):
        root = tmp_path / str(number)
        root.mkdir()
        manager = ConsumerFilterManager(root)
        # What registers filters is in no repository of jars for 4.9.
        if line_of(driver.version) == 5:
            driver.persist(
                "filters", root, {"filterDataByTopic": {}}, register=(topic, group, "a > 1")
            )
            assert manager.load()
            assert not manager.refused
            data = manager.get(topic, group)
            assert data is not None
            assert data.bloom_filter_data is not None
            bloom = BloomFilter.create()
            assert data.bloom_filter_data.bit_num == bloom.m
            assert data.bloom_filter_data.bit_pos == bloom.bit_positions(group, topic)
            assert (data.expression, data.client_version) == ("a > 1", 7)
        registered = manager.register(topic, group, "b = 'x'", client_version=8)
        assert registered.bloom_filter_data is not None
        manager.persist()
        read, _ = driver.load("filters", root)
        entry = read["filterDataByTopic"][topic]["groupFilterData"][group]
        assert entry["bloomFilterData"]["bitPos"] == registered.bloom_filter_data.bit_pos
        assert (entry["expression"], entry["clientVersion"]) == ("b = 'x'", 8)
