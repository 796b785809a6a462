"""D01 to D07: damaged index files below a store whose log is whole. Every key of every message is
found in both modes, nothing that is not real is answered, and a writer leaves the index mended."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import Crafted, snapshot
from golden import golden_stores
from rocketstore import formats
from rocketstore.directory.checkpoint import StoreCheckpoint

pytestmark = pytest.mark.usefixtures("index_check")

SLOTS, ENTRIES = crafted.OPTIONS["max_hash_slot_num"], crafted.OPTIONS["max_index_num"]
HEADER, ENTRY = formats.INDEX_HEADER, formats.INDEX_ENTRY


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "store"
    crafted.build(root, 48)
    return root


@pytest.fixture(scope="module")
def rocketmq_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("golden"))


@pytest.fixture(params=["own", "of RocketMQ"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Crafted:
    name = "template" if request.param == "own" else "rocketmq_template"
    return Crafted(request.getfixturevalue(name), tmp_path / "store")


class Index:
    """The bytes of one index file, to be changed."""

    def __init__(self, store: Crafted, number: int = -1) -> None:
        self.path = sorted((store.root / "index").iterdir())[number]
        self.content = bytearray(self.path.read_bytes())
        self.count = self.number(HEADER.at("index_count"))

    def number(self, at: int, width: int = 4) -> int:
        return int.from_bytes(self.content[at : at + width], "big", signed=True)

    def set(self, at: int, value: int, width: int = 4) -> None:
        self.content[at : at + width] = value.to_bytes(width, "big", signed=True)
        self.path.write_bytes(self.content)

    def entry_at(self, number: int, field: str) -> int:
        return formats.index_file_nbytes(SLOTS, number) + ENTRY.at(field)

    def slot_at(self, number: int) -> int:
        return HEADER.nbytes + number * formats.INDEX_SLOT.nbytes

    def chain(self, least: int) -> list[int]:
        """Entry numbers of a chain of ``least`` or more, newest first."""
        for slot in range(SLOTS):
            chain = []
            entry = self.number(self.slot_at(slot))
            while entry:
                chain.append(entry)
                entry = self.number(self.entry_at(entry, "previous_index"))
            if len(chain) >= least:
                return chain
        raise LookupError(f"no chain of {least}")


def keyed(store: Crafted) -> Iterator[tuple[str, str, int]]:
    """Topic, key and offset of every message that the index should hold."""
    for record in store.records:
        if record.sys_flag & 0xC != 0xC:
            for key in dict.fromkeys((record.key or "").split(" ")):
                if key:
                    yield record.topic, key, record.offset


def check_keys(store: Crafted, opened: rocketstore.DefaultMessageStore) -> None:
    """All keys are found. In mode "r" those of damaged older files only with ``derive="full"``,
    and the report says so."""
    lost = [*opened.recovery_report.notes, *opened.recovery_report.skipped]
    reported = opened.mode == "r" and any("index" in text for text in lost)
    wanted: dict[tuple[str, str], list[int]] = {}
    for topic, key, offset in keyed(store):
        wanted.setdefault((topic, key), []).append(offset)
    assert wanted
    real = {record.offset for record in store.records}
    for (topic, key), offsets in wanted.items():
        found = [message.physical_offset for message in opened.find(topic=topic, key=key)]
        assert found == offsets or (reported and set(found) <= set(offsets)), (topic, key)
        answer = opened.query_message(topic, key, 64)
        assert {message.physical_offset for message in answer.messages} <= real


def check(store: Crafted, *, aborted: bool = False) -> Any:
    """Both modes; returns the writer's report."""
    if aborted:
        store.crashed()
    before = snapshot(store.root)
    with rocketstore.open(store.root) as reader:
        check_keys(store, reader)
    with rocketstore.open(store.root, derive="full") as reader:
        reader.recovery_report.notes.clear()
        reader.recovery_report.skipped.clear()
        check_keys(store, reader)
    with rocketstore.open(store.root, derive="none") as reader:
        for topic, key, _ in keyed(store):
            reader.query_message(topic, key)
            list(reader.find(topic=topic, key=key))
    assert snapshot(store.root) == before
    with rocketstore.open(store.root, "r+") as writer:
        report = writer.recovery_report
        check_keys(store, writer)
        assert writer.put("Fresh", b"next", 0, None, "next").ok
    with rocketstore.open(store.root, "r+") as writer:
        check_keys(store, writer)
        assert [m.body for m in writer.find(topic="Fresh", key="next")] == [b"next"]
        verified = writer.verify()
        assert verified.ok, verified.findings[:5]
    return report


@pytest.mark.timeout(60)
@pytest.mark.parametrize("aborted", [True, False], ids=["aborted", "clean"])
@pytest.mark.parametrize("length", [1, 2])
def test_d01_chain_that_turns_back(store: Crafted, length: int, aborted: bool) -> None:
    index = Index(store)
    chain = index.chain(length)
    index.set(index.entry_at(chain[length - 1], "previous_index"), chain[0])
    report = check(store, aborted=aborted)
    assert any(index.path.name in note for note in report.notes)


@pytest.mark.parametrize("count", ["capacity", "capacity+1", "0", "-2**31"])
def test_d02_count_that_cannot_be(store: Crafted, count: str) -> None:
    values = {"capacity": ENTRIES, "capacity+1": ENTRIES + 1, "2**31-1": 2**31 - 1,
              "0": 0, "-1": -1, "-2**31": -(2**31)}  # fmt: skip
    Index(store).set(HEADER.at("index_count"), values[count])
    check(store)


@pytest.mark.parametrize("count", [1, 2, -1], ids=["none", "one", "all_but_one"])
def test_d02_count_that_is_too_low(store: Crafted, count: int) -> None:
    index = Index(store)
    index.set(HEADER.at("index_count"), count if count > 0 else index.count - 1)
    check(store)


@pytest.mark.parametrize("kind", ["count", "count+1", "capacity", "-1"])
def test_d03_slot_beyond_the_count(store: Crafted, kind: str) -> None:
    index = Index(store)
    values = {"count": index.count, "count+1": index.count + 1, "capacity": ENTRIES,
              "2**31-1": 2**31 - 1, "-1": -1, "-2**31": -(2**31)}  # fmt: skip
    used = [slot for slot in range(SLOTS) if index.number(index.slot_at(slot))]
    for slot in used[::2]:
        index.set(index.slot_at(slot), values[kind])
    check(store)


def test_d03_slots_lost(store: Crafted) -> None:
    index = Index(store, 0)
    for slot in range(SLOTS):
        index.set(index.slot_at(slot), 0)
    check(store)


WRONG_OFFSETS: dict[str, Callable[[Crafted, int], int]] = {
    "beyond_the_log": lambda store, old: store.files_end() + 1000,
    "behind_the_last": lambda store, old: store.records[-1].end,
    "mid_record": lambda store, old: old + 7,
    "other_record": lambda store, old: next(
        r.offset for r in store.records if r.offset != old and r.key
    ),
    "negative": lambda store, old: -1,
    "lowest": lambda store, old: -(2**63),
    "highest": lambda store, old: 2**63 - 1,
}


@pytest.mark.parametrize("wrong", WRONG_OFFSETS.values(), ids=WRONG_OFFSETS.keys())
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_d04_entry_that_names_another_place(
    store: Crafted, wrong: Callable[[Crafted, int], int], place: str
) -> None:
    index = Index(store)
    number = {"first": 1, "middle": index.count // 2, "last": index.count - 1}[place]
    at = index.entry_at(number, "physical_offset")
    old = index.number(at, 8)
    index.set(at, wrong(store, old), 8)
    real = {record.offset: record for record in store.records}
    with rocketstore.open(store.root, derive="none") as reader:
        for topic, key, _ in keyed(store):
            for message in reader.find(topic=topic, key=key):
                assert bytes(message.raw) == real[message.physical_offset].raw
                assert key in (message.keys or "").split(" ")
            for message in reader.query_message(topic, key).messages:
                assert bytes(message.raw) == real[message.physical_offset].raw


@pytest.mark.parametrize("nbytes", ["0", "40", "half", "-1", "+1"])
@pytest.mark.parametrize("number", [0, -1], ids=["oldest", "newest"])
def test_d05_file_of_another_length(store: Crafted, nbytes: str, number: int) -> None:
    index = Index(store, number)
    whole = len(index.content)
    values = {"half": whole // 2, "-1": whole - 1, "+1": whole + 1}
    with index.path.open("r+b") as file:
        file.truncate(values.get(nbytes) or int(nbytes))
    check(store)


@pytest.mark.parametrize("content", ["zeros", "ones", "random"])
@pytest.mark.parametrize("number", [0, -1], ids=["oldest", "newest"])
def test_d05_file_of_garbage(store: Crafted, content: str, number: int) -> None:
    index = Index(store, number)
    length = len(index.content)
    values = {"zeros": bytes(length), "ones": b"\xff" * length,
              "random": random.Random(6).randbytes(length)}  # fmt: skip
    index.path.write_bytes(values[content])
    check(store)


NAMES = [
    "notes",
    "2026112112495963",
    "202611211249596330",
    "2026112112495963x",
    ".20261121124959633",
]


@pytest.mark.parametrize("name", NAMES)
def test_d06_name_that_is_no_timestamp(store: Crafted, name: str) -> None:
    index = Index(store)
    foreign = store.root / "index" / name
    foreign.write_bytes(index.content)
    report = check(store)
    assert str(foreign) in report.skipped
    assert foreign.read_bytes() == index.content


def test_d06_folder_among_index_files(store: Crafted) -> None:
    foreign = store.root / "index" / "old"
    foreign.mkdir()
    report = check(store)
    assert str(foreign) in report.skipped
    assert foreign.is_dir()


@pytest.mark.parametrize("timestamp", [0, 1, crafted.TIME])
def test_d07_newest_file_is_newer_than_the_checkpoint(store: Crafted, timestamp: int) -> None:
    """RocketMQ deletes such files after an unclean stop; the keys of all but the last seconds are
    gone."""
    names = sorted(path.name for path in (store.root / "index").iterdir())
    checkpoint = StoreCheckpoint.read(store.root / "checkpoint", store.root)
    checkpoint.replace(index_timestamp=timestamp).write(store.root / "checkpoint")
    contents = {name: (store.root / "index" / name).read_bytes() for name in names}
    report = check(store, aborted=True)
    assert not report.clean
    for name in names[:-1]:
        assert (store.root / "index" / name).read_bytes() == contents[name]
    assert (store.root / "index" / names[-1]).exists()


def test_d07_newest_file_lags_and_is_completed(store: Crafted) -> None:
    """As after a power failure: the newest entries are missing."""
    index = Index(store)
    for number in range(index.count // 2, index.count):
        at = formats.index_file_nbytes(SLOTS, number)
        index.content[at : at + ENTRY.nbytes] = bytes(ENTRY.nbytes)
    index.path.write_bytes(index.content)
    check(store, aborted=True)
    assert index.path.exists()
