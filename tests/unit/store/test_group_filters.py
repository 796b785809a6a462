"""Filters of consumer groups: registered, turned into bit maps, and used when a group reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore import DefaultMessageStore, FilterSyntaxError, Sql92Filter, StoreFullError
from rocketstore.config_managers import ConsumerFilterManager
from rocketstore.filter.bloom_filter import BloomFilter
from rocketstore.message import StoredMessage
from support.own_process import run_python

OPTIONS: dict[str, Any] = {
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
    "mapped_file_size_consume_queue_ext": 4096,
    "mapped_file_size_consume_queue": 4000,
    "mapped_file_size_commit_log": 1 << 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
RED, BLUE = "color = 'red'", "color = 'blue'"
NOW = 1_800_000_000_000


class Clock:
    """Epoch ms, by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def writer(root: Path, clock: Clock, **options: Any) -> DefaultMessageStore:
    mode = "r+" if root.exists() else "x"
    chosen = {**OPTIONS, **options}
    return rocketstore.open(root, mode, clock=clock, start=False, **chosen)  # type: ignore


def register(store: DefaultMessageStore, expression: str, group: str = "g", **options: Any) -> Any:
    assert store._writer is not None
    return store._writer.register_filter("T", group, expression, **options)


def put(store: DefaultMessageStore, clock: Clock, *colors: str) -> None:
    """Put and dispatch a message for each color, one millisecond after another."""
    for color in colors:
        clock.now += 1
        store.put("T", color.encode(), 0, properties={"color": color})
    store.wait_dispatched()


class Watched(Sql92Filter):
    """Keeps the bodies of the messages that it is asked about."""

    def __init__(self, expression: str, **options: Any) -> None:
        super().__init__(expression, **options)
        self.asked: list[str] = []

    def is_matched_by_commit_log(self, message: StoredMessage) -> bool:
        self.asked.append(bytes(message.body).decode())
        return super().is_matched_by_commit_log(message)


def asked(
    store: DefaultMessageStore, expression: str, group: str = "g", **options: Any
) -> list[str]:
    """The bodies of the messages that had to be read for a group; the answer must be right."""
    watched = Watched(expression, **options)
    found = []
    for queue_id in store.queues("T"):
        offset = 0
        while offset < store.max_offset_in_queue("T", queue_id):
            result = store.get_message(group, "T", queue_id, offset, 4, filter=watched)
            found += [message.physical_offset for message in result.messages]
            offset = result.next_begin_offset
    plain = Sql92Filter(expression, **options)
    assert found == [m.physical_offset for m in store.scan() if plain.matches(m)]
    return watched.asked


# --- dispatch and reading -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["the writer", "r", "r+", "r+ without bit maps"])
def test_a_registered_group_reads_only_what_may_match(root: Path, clock: Clock, mode: str) -> None:
    with writer(root, clock) as store:
        put(store, clock, "red", "blue")
        register(store, RED)
        put(store, clock, "green", "red", "blue", "red")
        if mode == "the writer":
            assert asked(store, RED) == ["red", "blue", "red", "red"]
            assert asked(store, RED, "other") == ["red", "blue", "green", "red", "blue", "red"]
            assert asked(store, BLUE) == ["red", "blue", "green", "red", "blue", "red"]
            return
    options = {"enable_calc_filter_bit_map": False} if mode.endswith("maps") else {}
    with rocketstore.open(root, mode[:2].strip(), **OPTIONS | options) as store:
        assert asked(store, RED) == ["red", "blue", "red", "red"]
        assert asked(store, RED, "other") == ["red", "blue", "green", "red", "blue", "red"]
        assert store.verify().ok


def test_a_changed_expression_applies_to_later_messages(root: Path, clock: Clock) -> None:
    with writer(root, clock) as store:
        register(store, RED)
        put(store, clock, "red", "blue")
        clock.now += 1
        assert register(store, BLUE).born_time == clock.now
        put(store, clock, "red", "blue")
        assert asked(store, BLUE) == ["red", "blue", "blue"]
        assert asked(store, RED) == ["red", "blue", "red", "blue"]
        # Back again: a new filter too.
        clock.now += 1
        register(store, RED)
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue", "red", "blue", "red"]


def test_messages_that_wait_for_dispatch_are_judged_by_their_time(root: Path, clock: Clock) -> None:
    with writer(root, clock) as store:
        register(store, RED, "other")
        for color in ("red", "blue"):
            clock.now += 1
            store.put("T", color.encode(), 0, properties={"color": color})
        register(store, RED)
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue", "red"]
        assert asked(store, RED, "other") == ["red", "red"]


def test_a_clock_that_went_back_hides_nothing(root: Path, clock: Clock) -> None:
    """A filter is younger than every message that was dispatched without it."""
    with writer(root, clock) as store:
        register(store, RED, "other")
        put(store, clock, "red", "blue")
        clock.now -= 60_000
        assert register(store, RED).born_time == NOW + 2
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue", "red", "blue"]
    clock.now -= 60_000
    with writer(root, clock) as store:
        assert register(store, RED, "third").born_time == NOW + 2
        assert asked(store, RED, "third") == ["red", "blue", "red", "blue"]
        clock.now = NOW + 2
        put(store, clock, "red", "blue")
        assert asked(store, RED, "third") == ["red", "blue", "red", "blue", "red"]


def test_groups_that_are_gone_still_have_bits(root: Path, clock: Clock) -> None:
    with writer(root, clock) as store:
        register(store, RED)
        assert store._writer is not None
        store._writer.un_register_filters("g")
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red"]
        filters = store._writer.filters
        assert filters is not None
        assert filters._manager.get("T", "g").dead  # type: ignore[union-attr]


def test_other_topics_and_light_queues_have_no_bit_map(root: Path, clock: Clock) -> None:
    with writer(root, clock, enable_lmq=True, enable_multi_dispatch=True) as store:
        register(store, RED)
        clock.now += 1
        store.put("U", b"x", 0, properties={"color": "red"})
        store.put("T", b"red", 0, properties={"color": "red", "INNER_MULTI_DISPATCH": "%LMQ%q"})
        store.wait_dispatched()
        queues = store.reader.queues
        for topic, nbytes in (("U", 0), ("T", 14)):
            queue = queues.get(topic, 0)
            assert queue is not None
            assert queue.ext is not None
            unit = queue.ext.unit((queue.unit(0) or (0, 0, 0))[2])
            assert unit is not None
            assert len(unit.bit_map) == nbytes
        assert [m.body for m in store.get_message("g", "%LMQ%q", 0, 0).messages] == [b"red"]


def test_an_expression_with_other_meanings_is_not_judged_by_bit_maps(
    root: Path, clock: Clock
) -> None:
    """4.9 reads only the first word of it, which is never true."""
    text = "color CONTAINS 'e'"
    with writer(root, clock, broker_version="4.9.8") as store:
        register(store, text)
        put(store, clock, "red", "gray")
        assert asked(store, text) == ["red", "gray"]
        with pytest.warns(rocketstore.FilterWarning):
            assert asked(store, text, broker_version="4.9.8") == ["red", "gray"]


def test_strict_filters_use_bit_maps_too(root: Path, clock: Clock) -> None:
    with writer(root, clock) as store:
        register(store, RED)
        put(store, clock, "red", "blue")
        assert asked(store, RED, strict=True) == ["red"]


def test_a_filter_that_errs_sets_no_bit(root: Path, clock: Clock) -> None:
    with writer(root, clock) as store:
        register(store, "color > 5")
        put(store, clock, "red", "7")
        assert asked(store, "color > 5") == ["7"]


def test_no_bit_maps_without_the_option_or_ext_files(root: Path, clock: Clock) -> None:
    options: tuple[dict[str, Any], ...] = (
        {"enable_calc_filter_bit_map": False},
        {"enable_consume_queue_ext": False},
    )
    for number, chosen in enumerate(options):
        path = root.with_name(f"store{number}")
        with writer(path, clock, **chosen) as store:
            # A broker, too, keeps the filters of its consumers then.
            assert register(store, RED).expression == RED
            put(store, clock, "red", "blue")
            assert asked(store, RED) == ["red", "blue"]
            register(store, BLUE, "h")
        with writer(path, clock) as store:
            put(store, clock, "red", "blue")
            assert asked(store, RED)[:3] == ["red", "blue", "red"]
            assert list(stored(path)["T"]["groupFilterData"]) == ["g", "h"]


def test_longer_bit_maps(root: Path, clock: Clock) -> None:
    size = {"expect_consumer_num_use_filter": 1000, "max_error_rate_of_bloom_filter": 1}
    bloom = BloomFilter.create(1, 1000)
    with writer(root, clock, **size) as store:
        register(store, RED)
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red"]
    data = stored(root)["T"]["groupFilterData"]["g"]["bloomFilterData"]
    assert (data["bitNum"], len(data["bitPos"])) == (bloom.m, bloom.k)
    # Another size: the filter is refused, and its bit maps are not used.
    with writer(root, clock) as store:
        assert any("the filter of g on T is not used" in n for n in store.recovery_report.notes)
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue", "red", "blue"]
    assert stored(root) == {}
    with writer(root, clock, **size) as store:
        assert asked(store, RED) == ["red", "blue", "red", "blue"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_error_rate_of_bloom_filter", 0),
        ("max_error_rate_of_bloom_filter", 100),
        ("expect_consumer_num_use_filter", 0),
        ("expect_consumer_num_use_filter", -1),
        ("expect_consumer_num_use_filter", 100_000),
    ],
)
def test_sizes_of_bit_maps_that_cannot_be(name: str, value: int) -> None:
    with pytest.raises(rocketstore.ConfigError, match=name):
        rocketstore.MessageStoreConfig(**{name: value})  # type: ignore[arg-type]


# --- the file -------------------------------------------------------------------------------------


def table(root: Path) -> Path:
    return root / "config" / "consumerFilter.json"


def stored(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table(root).read_text())["filterDataByTopic"]
    return found


def edit(root: Path, **changes: Any) -> None:
    """Change the data of the group's filter in the file."""
    document = json.loads(table(root).read_text())
    document["filterDataByTopic"]["T"]["groupFilterData"]["g"].update(changes)
    table(root).write_text(json.dumps(document))


def filtered(root: Path, clock: Clock) -> None:
    """A store with a filter and four messages, closed in order."""
    with writer(root, clock) as store:
        register(store, RED)
        put(store, clock, "red", "blue", "red", "blue")


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({}, True),
        ({"dead": False, "deadTime": 0}, True),
        ({"clientVersion": 5}, True),
        ({"bornTime": NOW + 2}, False),
        ({"expression": BLUE}, False),
        ({"expression": RED + " "}, False),
        ({"expression": ""}, False),
        ({"expressionType": "TAG"}, False),
        ({"bloomFilterData": None}, False),
        ({"bloomFilterData": {"bitNum": 112, "bitPos": [1, 2]}}, False),
        ({"bloomFilterData": {"bitNum": 104, "bitPos": [1, 2, 3]}}, False),
        ({"bloomFilterData": {"bitNum": 112, "bitPos": [1, 2, 112]}}, False),
        ({"bloomFilterData": {"bitNum": 112, "bitPos": [-1, 2, 3]}}, False),
    ],
)
def test_what_the_file_says_of_a_group(
    root: Path, clock: Clock, changes: dict[str, Any], used: bool
) -> None:
    filtered(root, clock)
    edit(root, **changes)
    with rocketstore.open(root, "r", **OPTIONS) as store:
        expected = ["red", "blue", "red"] if "bornTime" in changes else ["red", "blue"] * 2
        assert asked(store, RED) == (["red", "red"] if used else expected)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"filterDataByTopic": 5}', b'{"filterDataByTopic": {"T": 5}}',
                b'{"filterDataByTopic": {"T": {"groupFilterData": {"g": {"bornTime": "x"}}}}}',
                b"\xff" * 100, b"null", None],
)  # fmt: skip
def test_a_file_that_cannot_be_read_hides_nothing(
    root: Path, clock: Clock, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    filtered(root, clock)
    table(root).unlink()
    if content is not None:
        table(root).write_bytes(content)
    with rocketstore.open(root, "r", **OPTIONS) as store:
        assert asked(store, RED) == ["red", "blue"] * 2
    warned = any("bit maps are not used" in record.getMessage() for record in caplog.records)
    assert warned is (content not in (None, b"null"))
    with writer(root, clock) as store:
        noted = any("consumerFilter.json" in note for note in store.recovery_report.notes)
        assert noted is (content is not None)
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue"] * 3
        register(store, RED)
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue"] * 3 + ["red"]


def test_a_folder_in_its_place_hides_nothing(root: Path, clock: Clock) -> None:
    filtered(root, clock)
    table(root).unlink()
    table(root).mkdir()
    with rocketstore.open(root, "r", **OPTIONS) as store:
        assert asked(store, RED) == ["red", "blue"] * 2
    with pytest.raises(rocketstore.MappedFileError):
        writer(root, clock)


def test_only_a_backup_left(root: Path, clock: Clock) -> None:
    """It may lack the last changes: bit maps of messages stored so far are not used."""
    filtered(root, clock)
    backup = table(root).with_name("consumerFilter.json.bak")
    table(root).rename(backup)
    with rocketstore.open(root, "r", **OPTIONS) as store:
        assert asked(store, RED) == ["red", "blue"] * 2
    with writer(root, clock) as store:
        assert asked(store, RED) == ["red", "blue"] * 2
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue"] * 2 + ["red"]
    data = stored(root)["T"]["groupFilterData"]["g"]
    assert (data["bornTime"], data["deadTime"] >= data["bornTime"]) == (NOW + 4, True)


def test_filters_changed_between_two_runs(root: Path, clock: Clock) -> None:
    """By a program that uses the table's class, as a tool may."""
    filtered(root, clock)
    manager = ConsumerFilterManager(root, clock=clock)
    assert manager.load()
    manager.register("T", "g", BLUE)
    manager.register("T", "h", RED)
    manager.persist()
    with writer(root, clock) as store:
        put(store, clock, "red", "blue")
        assert asked(store, BLUE) == ["red", "blue"] * 2 + ["blue"]
        assert asked(store, RED, "h") == ["red", "blue"] * 2 + ["red"]
        assert asked(store, RED) == ["red", "blue"] * 3


def test_a_refused_expression_in_the_file(root: Path, clock: Clock) -> None:
    """It sets no bit; a broker lets all messages pass for the group then."""
    filtered(root, clock)
    edit(root, expression="color =")
    with writer(root, clock) as store:
        assert store.recovery_report.notes == [
            "the filter of g on T sets no bit: RocketMQ refuses 'color ='"
        ]
        put(store, clock, "red")
        assert asked(store, RED) == ["red", "blue"] * 2 + ["red"]
    edit(root, expression=RED)
    with rocketstore.open(root, "r", **OPTIONS) as store:
        assert asked(store, RED, "another") == ["red", "blue"] * 2 + ["red"]


# --- registering ----------------------------------------------------------------------------------


def test_what_is_registered_is_on_disk_before_it_counts(
    root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(root, clock) as store:
        register(store, RED)
        assert stored(root)["T"]["groupFilterData"]["g"]["expression"] == RED
        put(store, clock, "red", "blue")
        monkeypatch.setattr(ConsumerFilterManager, "persist", no_room)
        clock.now += 1
        for expression in (BLUE, "color ="):
            with pytest.raises(StoreFullError):
                register(store, expression)
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "red"]
        assert asked(store, BLUE) == ["red", "blue"] * 2
        monkeypatch.undo()
        with pytest.raises(FilterSyntaxError):
            register(store, "color =")
        assert stored(root) == {}
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue"] * 3


def no_room(manager: ConsumerFilterManager) -> None:
    raise StoreFullError(28, "no room")


@pytest.mark.parametrize("which", ["the writer", "a reader beside it"])
def test_a_change_while_a_group_reads(root: Path, clock: Clock, which: str) -> None:
    """The bit maps of what came meanwhile are not judged by the former filter."""
    with writer(root, clock) as store:
        register(store, RED)
        put(store, clock, "blue")
        with rocketstore.open(root, "r", **OPTIONS) as reader:
            one = store if which == "the writer" else reader
            changes = [BLUE]

            def get_message(*call: Any) -> rocketstore.GetMessageResult:
                if changes:
                    clock.now += 1
                    register(store, changes.pop())
                    put(store, clock, "red")
                    if one is reader:
                        reader.refresh()
                return one.reader.get_message(*call)

            place: Any = SimpleNamespace(get_message=get_message)
            filters, wanted = one._group_filters(), Sql92Filter(RED)
            for _ in range(2):
                result = filters.get_message(place, "g", "T", 0, 0, 32, wanted)
                assert [message.body for message in result.messages] == [b"red"]


# --- other processes ------------------------------------------------------------------------------


def as_a_killed_broker_leaves_it(root: Path, written: int) -> None:
    """The state file of rocketstore does not count, and the table was written at ``written``."""
    (root / "rocketstore.state").unlink()
    (root / "abort").write_bytes(b"")
    os.utime(table(root), (written / 1000, written / 1000))


def test_what_a_broker_may_have_changed_before_it_was_killed(root: Path, clock: Clock) -> None:
    """It writes its filters each ten seconds: later bit maps may be by another expression."""
    filtered(root, clock)
    as_a_killed_broker_leaves_it(root, NOW + 2)
    with rocketstore.open(root, "r", **OPTIONS) as store:
        assert asked(store, RED) == ["red", "red", "blue"]
    with writer(root, clock) as store:
        assert asked(store, RED) == ["red", "blue"] * 2
        put(store, clock, "red", "blue")
        assert asked(store, RED) == ["red", "blue"] * 2 + ["red"]
    assert stored(root)["T"]["groupFilterData"]["g"]["bornTime"] == NOW + 4


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from unit.store.test_group_filters import RED, Clock, put, register, writer
clock = Clock()
store = writer(Path(sys.argv[1]), clock)
register(store, RED)
put(store, clock, *["red", "blue"] * 40)
if sys.argv[3] == "flushed":
    store._writer.flush_thoroughly()
    put(store, clock, *["red", "blue"] * 40)
os._exit(9)
"""


@pytest.mark.parametrize("moment", ["new", "flushed"])
@pytest.mark.parametrize("lost", ["nothing", "ext", "queues"])
def test_a_killed_writer_leaves_bit_maps_that_are_used(
    root: Path, clock: Clock, moment: str, lost: str
) -> None:
    """Units that are lost are rebuilt, byte for byte."""
    tests = str(Path(__file__).resolve().parents[2])
    assert run_python(KILLED, str(root), tests, moment).returncode == 9
    files = {path: path.read_bytes() for path in sorted(root.glob("consumequeue*/T/0/*"))}
    assert len(files) == (2 if moment == "new" else 3)
    for path in files:
        if lost == "queues" or (lost == "ext" and "_ext" in str(path)):
            path.unlink()
    count = 80 if moment == "new" else 160
    with rocketstore.open(root, "r", **OPTIONS) as store:
        # What is not in the files is made in memory, without bit maps.
        assert len(asked(store, RED)) == (count // 2 if lost == "nothing" else count)
    with writer(root, clock) as store:
        assert asked(store, RED) == ["red"] * (count // 2)
        assert store.verify().ok
    after = {path: path.read_bytes() for path in files}
    assert {p: c.rstrip(b"\0") for p, c in after.items()} == {
        p: c.rstrip(b"\0") for p, c in files.items()
    }


# --- damage ---------------------------------------------------------------------------------------


def ext_path(root: Path) -> Path:
    return root / "consumequeue_ext" / "T" / "0" / "0".zfill(20)


def put_bit_map_size(content: bytearray, value: int) -> None:
    content[18:20] = value.to_bytes(2, "big", signed=True)


SPOILED: dict[str, Any] = {
    "no bit map": lambda c: put_bit_map_size(c, 0),
    "shorter": lambda c: put_bit_map_size(c, 13),
    "longer": lambda c: put_bit_map_size(c, 15),
    "longest": lambda c: put_bit_map_size(c, 32767),
    "negative": lambda c: put_bit_map_size(c, -14),
    "other size": lambda c: c.__setitem__(slice(0, 2), (35).to_bytes(2, "big")),
    "zeros": lambda c: c.__setitem__(slice(0, 200), bytes(200)),
    "empty": lambda c: c.clear(),
}


@pytest.mark.parametrize("how", SPOILED)
def test_damaged_ext_files_hide_nothing(root: Path, clock: Clock, how: str) -> None:
    """A good unit of the wrong length is no bit map of the group; others are no units at all."""
    with writer(root, clock) as store:
        register(store, RED)
        put(store, clock, "blue", "red", "blue", "red")
    content = bytearray(ext_path(root).read_bytes())
    SPOILED[how](content)
    ext_path(root).write_bytes(content)
    for derive in ("none", "tail"):
        with rocketstore.open(root, "r", derive=derive, **OPTIONS) as store:  # type: ignore
            found = asked(store, RED)
            assert found[0] == "blue"
            assert found.count("red") == 2
    with writer(root, clock) as store:
        assert asked(store, RED) == ["red", "red"]
        put(store, clock, "blue", "red")
        assert asked(store, RED) == ["red"] * 3
        assert store.verify().ok


def test_a_truncated_ext_file_is_named(root: Path, clock: Clock) -> None:
    filtered(root, clock)
    os.truncate(ext_path(root), 60)
    for mode in ("r", "r+"):
        with pytest.raises(rocketstore.ConfigError, match="mapped_file_size_consume_queue_ext"):
            rocketstore.open(root, mode, **OPTIONS)  # type: ignore[arg-type]
    sizes = {"mapped_file_size_consume_queue_ext": None}
    with rocketstore.open(root, "r", **OPTIONS | sizes) as store:
        assert asked(store, RED).count("red") == 2


def test_a_consistent_unit_without_a_bit_map_stays(root: Path, clock: Clock) -> None:
    """As written while bit maps were off: its message is read."""
    with writer(root, clock, enable_calc_filter_bit_map=False) as store:
        register(store, RED)
        put(store, clock, "blue", "red")
    with writer(root, clock) as store:
        put(store, clock, "blue", "red")
        assert asked(store, RED) == ["blue", "red", "red"]
        assert store.verify().ok


def test_an_ext_file_that_vanishes_while_a_group_reads(root: Path, clock: Clock) -> None:
    filtered(root, clock)
    with rocketstore.open(root, "r", **OPTIONS) as store:
        ext_path(root).unlink()
        assert asked(store, RED).count("red") == 2


def test_loading_from_a_program_of_its_own_costs_nothing_for_others(root: Path) -> None:
    """Stores without filters do not import what compiles them."""
    program = """
import sys, rocketstore
with rocketstore.open(sys.argv[1], "x", enable_consume_queue_ext=True) as store:
    store.put("T", b"body", 0, "A")
    store.wait_dispatched()
    store.get_message("g", "T", 0, 0, filter=rocketstore.TagFilter("A"))
assert "rocketstore.filter.sql92.parser" not in sys.modules
assert "rocketstore.store.group_filters" not in sys.modules
"""
    done = run_python(program, str(root))
    assert done.returncode == 0, done.stderr
