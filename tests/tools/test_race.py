"""The race beside RocketMQ: its messages, its arithmetic and its lines, without Java."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rocketstore
from support.benchmark_modules import benchmark_module

ROOT = Path(__file__).resolve().parents[2]


def part(name: str) -> ModuleType:
    """A module of ``benchmarks/race``."""
    return benchmark_module(f"race.{name}")


messages, figures, busy, report, rows = map(part, ("messages", "figures", "busy", "report", "rows"))
Sample = figures.Sample


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", messages.SHAPES)
def test_a_set_is_the_same_each_time_and_in_its_file(shape: str, tmp_path: Path) -> None:
    made = [messages.MessageSet.make(shape, "1k", 0, 500) for _ in range(2)]
    made[0].write(tmp_path / "set")
    for other in (made[1], messages.MessageSet.read(tmp_path / "set")):
        assert list(other.plain(0, 500)) == list(made[0].plain(0, 500))
        assert list(other.samples) == list(made[0].samples)
    assert {len(one.body) for one in made[0].plain(0, 500)} <= set(range(512, 1537))


def test_a_producer_s_properties_stand_in_the_order_that_its_client_sends() -> None:
    first = messages.MessageSet.make("producer", "100", 0, 500)[0]
    assert list(first.properties) == ["KEYS", "UNIQ_KEY", "WAIT", "TAGS"]
    assert len(first.properties["UNIQ_KEY"]) == 32
    assert first.properties["UNIQ_KEY"] == first.properties["UNIQ_KEY"].upper()


def test_sets_of_a_shape_spread_over_topics_and_queues() -> None:
    counts = messages.MessageSet.make("producer", "100", 0, 10_000).counts(10_000)
    assert len(counts) == 64
    assert sum(counts.values()) == 10_000
    halves = messages.MessageSet.make("transaction", "100", 0, 1000).counts(1000)
    assert halves[messages.HALF_TOPIC, 0] == 500


@pytest.mark.parametrize(
    ("call", "shape"),
    sorted(
        (row.line.split()[1], shape)
        for row in rows.PUTS
        if row.line.startswith("put ")
        for shape in row.shapes
    ),
)
def test_every_call_puts_the_same_number_of_bytes(shape: str, call: str, tmp_path: Path) -> None:
    chosen = messages.MessageSet.make(shape, "100", 0, 1000)
    with rocketstore.open(tmp_path / "s", "x", broker_version="4.9.8") as store:
        answer = part("putting").put(store, chosen, call, 0, 40, 20, wait=True)
        assert answer["count"] == 40
        assert store.max_physical_offset == sum(one.nbytes for one in chosen.plain(0, 40))
        if call != "put_columns":  # which has the same properties for all
            stored = [dict(message.properties) for message in store.scan()]
            assert stored == [one.properties for one in chosen.plain(0, 40)]


def test_a_set_fills_the_log_that_was_asked_for() -> None:
    chosen = messages.MessageSet.make("producer", "4k", 8 << 20)
    # A version of the 5.x line stores one byte more for each.
    nbytes = sum(one.nbytes + 1 for one in chosen.plain(0, len(chosen)))
    assert 0.98 * (8 << 20) < nbytes <= 8 << 20


# --- rows -----------------------------------------------------------------------------------------


def test_rows_ask_for_what_the_worker_can_do() -> None:
    putting, asking = part("putting"), part("asking")
    for row in rows.PUTS:
        name, call = row.line.split()
        assert name in ("put", "put_dispatched")
        assert call in putting.CALLS
    for family in rows.SHARED:
        assert {line.split()[0] for line in family.lines} <= set(part("ours")._MANY)
    names = {row.line.split()[0] for row in rows.ASKS}
    assert names == {"get", *asking._SCANS, *asking._QUESTIONS}
    assert len(set(rows.NAMES)) == len(rows.NAMES)
    assert not set(rows.NAMES).intersection(rows.FAMILIES)


def test_options_choose_rows_by_name_family_or_length() -> None:
    arguments = part("run").arguments
    assert arguments([]).rows == [*rows.NAMES, "peers"]
    given = arguments(["--rows", "find", "opens"])
    assert given.rows == ["find", *rows.OPENS]
    given = arguments(["--short"])
    assert set(given.rows) < {*rows.NAMES, "peers"}
    assert (given.mib, given.messages, given.without) == (256, ["producer"], ["reference"])
    rows_of = part("run").rows_of
    assert rows_of(given, "100") - rows_of(given, "4k") == {
        *rows.FAMILIES["group_commit"], *rows.FAMILIES["threads"],
    }  # fmt: skip


def test_questions_find_what_was_put(tmp_path: Path) -> None:
    putting, asking = part("putting"), part("asking")
    chosen = messages.MessageSet.make("producer", "100", 0, 1000)
    with rocketstore.open(tmp_path / "s", "x", broker_version="5.5.0") as store:
        putting.put(store, chosen, "put_many", 0, 300, 100, wait=True)
        for name in ("query", "find", "keys", "id", "time"):
            assert asking.ask(store, chosen, 300, name, ["50"])["count"] == 50, name
        for words in (["32", "views"], ["32", "body"], ["1", "views"]):
            assert asking.ask(store, chosen, 300, "get", [*words, "4", "300"])["count"] == 300
        assert asking.ask(store, chosen, 300, "get", ["1", "views", "4", "20"])["count"] == 20
        assert asking.ask(store, chosen, 300, "scan_body", [])["count"] == 300


def test_threads_put_everything(tmp_path: Path) -> None:
    chosen = messages.MessageSet.make("producer", "100", 0, 1000)
    with rocketstore.open(tmp_path / "s", "x") as store:
        answer = part("putting").threads(store, chosen, 3, 0, 100, 40)
        assert answer["count"] == 100
        assert sum(1 for _ in store.scan()) == 100


def test_futures_put_everything_to_disk(tmp_path: Path) -> None:
    chosen = messages.MessageSet.make("producer", "100", 0, 1000)
    with rocketstore.open(tmp_path / "s", "x", flush_disk_type="SYNC_FLUSH") as store:
        answer = part("putting").futures(store, chosen, 7, 0, 100, 40)
        assert answer["count"] == 100
        assert store.flushed_offset == store.max_physical_offset
        assert sorted(message.properties["KEYS"] for message in store.scan()) == [
            one.properties["KEYS"] for one in chosen.plain(0, 100)
        ]


def test_a_reader_beside_a_writer_reads_what_was_put_meanwhile(tmp_path: Path) -> None:
    chosen = messages.MessageSet.make("producer", "100", 0, 1000)
    with rocketstore.open(tmp_path / "s", "x") as store:
        part("putting").put(store, chosen, "put_many", 0, 100, 100, wait=False)
        answer = part("beside").put_and_read(store, chosen, 32, 100, 200, 90)
        assert answer["count"] == 200
        assert answer["read"] >= answer["wall"] > 0
        assert sum(1 for _ in store.scan()) == 300


def test_rows_that_share_a_store_are_raced_without_jars(tmp_path: Path) -> None:
    command = [
        *(sys.executable, ROOT / "benchmarks" / "race", "--mib", "1", "--rounds", "1"),
        *("--bodies", "100", "--messages", "producer", "--rows", "sync_64_futures", "threads"),
        *("--without", "reference", "--folder", tmp_path / "stores", "--svg", tmp_path),
        *("--json", tmp_path / "race.json", "--versions"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (table,) = json.loads((tmp_path / "race.json").read_text())["tables"]
    found = {row["name"]: row for row in table["rows"]}
    assert tuple(found) == ("sync_64_futures", *rows.FAMILIES["threads"])
    assert all(row["native"]["wall"] > 0 for row in found.values())
    assert found["sync_64_futures"]["limit"]["wall"] > 0
    assert found["put_beside_reader"]["limit"] is None
    assert list((tmp_path / "stores").iterdir()) == []


# --- figures --------------------------------------------------------------------------------------


def samples(contestant: str, line: str, walls: list[int], cpu: int = 100) -> list[Any]:
    """Samples of 10 messages each."""
    return [
        Sample("producer", "100", line, contestant, number, wall, cpu, cpu, 10)
        for number, wall in enumerate(walls)
    ]


def test_ratios_are_those_of_medians_against_the_better_jar() -> None:
    (line,) = figures.lines(
        [
            *samples("jar 4.9.8", "put single", [4000, 6000, 5000], 800),
            *samples("jar 5.5.0", "put single", [7000, 6000, 9000], 600),
            *samples("rocketstore", "put put_message", [1000, 3000, 2000]),
            *samples("limit", "put fresh", [500]),
            *samples("limit", "put resident", [400]),
        ]
    )
    assert line.name == "put_message"
    assert line.native.wall == 200
    assert line.native.spread == 1.0
    assert (line.to_jar, line.to_jar_cpu, line.to_limit) == (2.5, 6.0, 4.0)
    assert line.resident.wall == 40
    assert report.wall_table([line], ["jar 4.9.8", "jar 5.5.0"])[1].split() == [
        "put_message", "500", "700", "200", "100%", "-", "50.0", "40.0", "2.50x", "6.00x", "4.00x",
    ]  # fmt: skip


def test_a_limit_of_two_parts_is_their_sum_and_nothing_without_one() -> None:
    mine = samples("rocketstore", "put_dispatched put_many", [100])
    (line,) = figures.lines([*mine, *samples("limit", "put fresh", [10])])
    assert line.limit is None
    assert line.to_limit is None
    both = [*samples("limit", "put fresh", [10]), *samples("limit", "rebuild", [30])]
    (line,) = figures.lines([*mine, *both])
    assert line.limit.wall == 4
    assert line.to_limit == 2.5


# --- a busy machine -------------------------------------------------------------------------------


def test_the_share_of_others_is_what_neither_we_nor_the_kernel_used() -> None:
    assert busy.parse_stat("cpu 10 0 5 80 3 0 1 1 0 0\ncpu0 ...\n") == (100, 17)
    before, after = busy.Usage(1000, 200, 10), busy.Usage(1200, 300, 20)
    assert busy.others_share(before, after, 60.0) == pytest.approx(30 / 200)
    assert busy.others_share(before, after, 95.0) == 0.0
    assert busy.others_share(before, before, 0.0) == 0.0


def test_a_quiet_machine_gives_no_sentence() -> None:
    assert busy.verdict(0.01, [0.02, 0.03], [100, 103, 101]) == []
    assert len(busy.verdict(0.5, [0.3], [100, 150, 101])) == 3
    assert busy.spread([4.0]) == 0.0
    assert busy.spread([4.0, 5.0, 6.0]) == pytest.approx(0.4)
    usage = busy.Usage.now()
    assert usage.total >= usage.busy > 0
