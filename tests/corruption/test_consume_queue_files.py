"""Damaged queue files, ext files and light queues: nothing wrong is served, nothing stays lost.

Every case damages a store that RocketMQ wrote and knows RocketMQ's own files and answers, so the
expected outcome is that of a clean build.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import TagFilter, formats
from rocketstore.files.mapped_file import MappedFile
from support.directory import files_below

UNIT = formats.CONSUME_QUEUE_UNIT
NAMES = ("plain-5.3.3", "ext-4.9.8", "lmq-5.3.3")
#: A queue with two files and more in every one of these stores, by store.
LONG_QUEUE = {"plain-5.3.3": "T/0", "ext-4.9.8": "T/0", "lmq-5.3.3": "T/0"}
PARTS = ("consumequeue", "consumequeue_ext")
#: Sizes that nothing shows once the files are gone.
SIZES = {"mapped_file_size_consume_queue": 320, "mapped_file_size_consume_queue_ext": 2048}

Messages = dict[tuple[str, int], list[tuple[int, bytes]]]


def queue_files(root: Path) -> dict[str, bytes]:
    """All files of queues and ext files."""
    return {
        f"{part}/{name}": content
        for part in PARTS
        for name, content in files_below(root / part).items()
    }


def messages(store: rocketstore.DefaultMessageStore) -> Messages:
    """(queue offset, record) of every message in every queue."""
    found: Messages = {}
    for topic in store.topics():
        for queue_id in store.queues(topic):
            rows = found[topic, queue_id] = []
            offset = store.min_offset_in_queue(topic, queue_id)
            while offset < store.max_offset_in_queue(topic, queue_id):
                result = store.get_message("g", topic, queue_id, offset)
                for number, message in enumerate(result.messages, offset):
                    rows.append((number, bytes(message.raw)))
                offset = result.next_begin_offset
    return found


@pytest.fixture(scope="module", params=NAMES)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as RocketMQ left it."""
    return golden_stores.unpack(request.param, tmp_path_factory.mktemp(request.param))


def long_queue(original: Path, part: str = "consumequeue") -> str:
    """Folder of a queue of two files."""
    return f"{part}/T/0"


def damaged(original: Path, tmp_path: Path, damage: Callable[[Path], None]) -> Path:
    root = tmp_path / "store"
    shutil.copytree(original, root)
    damage(root)
    return root


def assert_made_good(original: Path, root: Path, **options: object) -> rocketstore.RecoveryReport:
    """Both modes serve every message and no other; writing makes the files what they were."""
    with rocketstore.open(original, "r") as store:
        expected = messages(store)
    before = files_below(root)
    with rocketstore.open(root, "r") as store:
        assert messages(store) == expected
    assert files_below(root) == before
    with rocketstore.open(root, "r+", **options) as store:
        assert messages(store) == expected
        report = store.recovery_report
    assert queue_files(root) == queue_files(original)
    assert rocketstore.open(root, "r").verify().ok
    return report


def rewrite(path: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def first_file(root: Path, folder: str) -> Path:
    return min((root / folder).iterdir())


def put_unit(content: bytearray, index: int, *fields: int) -> None:
    UNIT.struct.pack_into(content, index * UNIT.nbytes, *fields)


def unit(content: bytes | bytearray, index: int) -> tuple[int, int, int]:
    offset, size, code = UNIT.struct.unpack_from(content, index * UNIT.nbytes)
    return offset, size, code


# --- C01 to C08 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 1, 111, 319, 321, 640])
def test_c01_file_of_another_length(original: Path, tmp_path: Path, nbytes: int) -> None:
    def truncate(root: Path) -> None:
        path = first_file(root, long_queue(original))
        path.write_bytes((path.read_bytes() + bytes(320))[:nbytes])

    root = damaged(original, tmp_path, truncate)
    report = assert_made_good(original, root)
    assert any("quarantine" in note for note in report.notes)
    kept = list((root / "quarantine").iterdir())
    assert [path.stat().st_size for path in kept] == [nbytes]


def test_c02_entries_beyond_the_end_of_the_log(original: Path, tmp_path: Path) -> None:
    """The log lost its tail; what pointed there must not be taken for messages written later."""
    with rocketstore.open(original, "r") as store:
        end = store.max_physical_offset

    def append(root: Path) -> None:
        path = max((root / long_queue(original)).iterdir())

        def change(content: bytearray) -> None:
            count = len(bytes(content).rstrip(b"\0")) // UNIT.nbytes + 1
            for index in range(count, min(count + 3, len(content) // UNIT.nbytes)):
                put_unit(content, index, end + 100 * index, 100, 7)

        rewrite(path, change)
        (root / "abort").touch()  # after an orderly stop the log's end would be missing

    assert_made_good(original, damaged(original, tmp_path, append))


@pytest.mark.parametrize("first", [0, 3, 15])
def test_c03_zeroed_stretch_among_good_entries(original: Path, tmp_path: Path, first: int) -> None:
    def zero(root: Path) -> None:
        def change(content: bytearray) -> None:
            stop = min(len(content), (first + 5) * UNIT.nbytes)
            content[first * UNIT.nbytes : stop] = bytes(stop - first * UNIT.nbytes)

        rewrite(first_file(root, long_queue(original)), change)

    report = assert_made_good(original, damaged(original, tmp_path, zero))
    assert report.rebuilt_units == min(5, 16 - first)


def test_c03_zeroed_page_in_a_longer_queue(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_consume_queue=16 * 4096) as store:
        for number in range(1000):
            store.put("Topic", b"%d" % number, 0, "tag")
    whole = queue_files(root)
    with rocketstore.open(root, "r") as store:
        expected = messages(store)
    rewrite(first_file(root, "consumequeue/Topic/0"), lambda c: c.__setitem__(
        slice(4096, 8192), bytes(4096)
    ))  # fmt: skip
    for mode in ("r", "r+"):
        with rocketstore.open(root, mode) as store:
            assert messages(store) == expected
    assert queue_files(root) == whole


@pytest.mark.parametrize("by", [1, -1, 50])
def test_c04_entry_into_the_middle_of_a_record(original: Path, tmp_path: Path, by: int) -> None:
    def shift(root: Path) -> None:
        def change(content: bytearray) -> None:
            offset, size, code = unit(content, 4)
            put_unit(content, 4, offset + by, size, code)

        rewrite(first_file(root, long_queue(original)), change)

    report = assert_made_good(original, damaged(original, tmp_path, shift))
    assert report.rebuilt_units >= 1


def test_c04_entry_at_another_topics_record(original: Path, tmp_path: Path) -> None:
    other = first_file(original, "consumequeue/TopicA/0").read_bytes()

    def point_elsewhere(root: Path) -> None:
        rewrite(first_file(root, long_queue(original)), lambda c: put_unit(c, 2, *unit(other, 1)))

    assert_made_good(original, damaged(original, tmp_path, point_elsewhere))


def test_c04_entry_with_another_tags_code(original: Path, tmp_path: Path) -> None:
    """A consumer of the tag would never see the message."""

    def change_code(root: Path) -> None:
        def change(content: bytearray) -> None:
            put_unit(content, 3, *unit(content, 3)[:2], 4711)

        rewrite(first_file(root, long_queue(original)), change)

    assert_made_good(original, damaged(original, tmp_path, change_code))


def test_c04_a_unit_that_was_mended_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is before the queue's end, up to which everything counted as synced. It was never synced,
    although the state file claimed it. After a power failure the wrong unit was back, and stayed
    if the log had grown past the range that is compared."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x") as store:
        for _ in range(10):
            assert store.put("T", b"x", tags="A").ok
    path = root / "consumequeue" / "T" / "0" / formats.offset_to_file_name(0)
    with path.open("r+b") as file:
        file.seek(3 * UNIT.nbytes + UNIT.at("tags_code"))
        file.write(struct.pack(">q", 77))
    synced: list[tuple[int, int]] = []
    flush = MappedFile.flush

    def note_and_flush(file: MappedFile, position: int) -> None:
        if file.path == path and position > file.flushed_position:
            synced.append((file.flushed_position, position))
        flush(file, position)

    monkeypatch.setattr(MappedFile, "flush", note_and_flush)
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.rebuilt_units == 1
    assert any(start <= 3 * UNIT.nbytes and 4 * UNIT.nbytes <= stop for start, stop in synced)
    synced.clear()
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.rebuilt_units == 0
    assert synced == []


def test_c05_entries_out_of_order(original: Path, tmp_path: Path) -> None:
    def swap(root: Path) -> None:
        def change(content: bytearray) -> None:
            second, fifth = unit(content, 2), unit(content, 5)
            put_unit(content, 2, *fifth)
            put_unit(content, 5, *second)

        rewrite(first_file(root, long_queue(original)), change)

    assert_made_good(original, damaged(original, tmp_path, swap))


def test_c05_doubled_entry(original: Path, tmp_path: Path) -> None:
    def double(root: Path) -> None:
        rewrite(
            first_file(root, long_queue(original)),
            lambda c: c.__setitem__(slice(120, 320), c[100:300]),
        )

    assert_made_good(original, damaged(original, tmp_path, double))


@pytest.mark.parametrize(
    ("offset", "size"),
    [(-1, 100), (-(2**63), 100), (2**63 - 1, 2**31 - 1), (0, -1), (5, 0), (2**62, 100)],
)
def test_c06_numbers_that_cannot_be(original: Path, tmp_path: Path, offset: int, size: int) -> None:
    def spoil(root: Path) -> None:
        rewrite(first_file(root, long_queue(original)), lambda c: put_unit(c, 6, offset, size, 1))

    assert_made_good(original, damaged(original, tmp_path, spoil))


@pytest.mark.parametrize("folder", ["", "/T", "/T/0"])
def test_c07_directory_is_missing(original: Path, tmp_path: Path, folder: str) -> None:
    root = damaged(original, tmp_path, lambda root: shutil.rmtree(root / f"consumequeue{folder}"))
    options = SIZES if (root / "consumequeue_ext").exists() else {}
    with rocketstore.open(original, "r") as store:
        expected = messages(store)
    with rocketstore.open(root, "r+", **{**SIZES, **options}) as store:
        assert messages(store) == expected
    assert queue_files(root) == queue_files(original)


def test_c07_first_file_is_missing(original: Path, tmp_path: Path) -> None:
    root = damaged(original, tmp_path, lambda root: first_file(root, long_queue(original)).unlink())
    assert_made_good(original, root)


def test_c08_last_file_is_all_zero(original: Path, tmp_path: Path) -> None:
    root = damaged(
        original,
        tmp_path,
        lambda root: max((root / long_queue(original)).iterdir()).write_bytes(bytes(320)),
    )
    assert_made_good(original, root)


def test_c08_last_file_is_one_too_many(original: Path, tmp_path: Path) -> None:
    """RocketMQ makes no queue file ahead; a broker that was killed may leave one of zeros."""

    def add(root: Path) -> None:
        last = max((root / long_queue(original)).iterdir())
        start = formats.file_name_to_offset(last.name)
        assert start is not None
        (last.parent / formats.offset_to_file_name(start + 320)).write_bytes(bytes(320))

    assert_made_good(original, damaged(original, tmp_path, add))


# --- ext files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_ext(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with consume-queue-ext files as RocketMQ left it."""
    return golden_stores.unpack("ext-4.9.8", tmp_path_factory.mktemp("ext"))


def spoil_size(content: bytearray) -> None:
    struct.pack_into(">h", content, 20, 21)


def spoil_bit_map_size(content: bytearray) -> None:
    struct.pack_into(">h", content, 38, -1)


EXT_DAMAGE: dict[str, Callable[[bytearray], object]] = {
    "zeros": lambda content: content.__setitem__(slice(0, 60), bytes(60)),
    "garbage": lambda content: content.__setitem__(slice(40, 90), b"\x5a" * 50),
    "size": spoil_size,
    "bit-map-size": spoil_bit_map_size,
    "all": lambda content: content.__setitem__(slice(None), b"\xff" * len(content)),
}


@pytest.mark.parametrize("kind", EXT_DAMAGE)
def test_damaged_ext_file_is_rebuilt(with_ext: Path, tmp_path: Path, kind: str) -> None:
    root = damaged(
        with_ext,
        tmp_path,
        lambda root: rewrite(first_file(root, "consumequeue_ext/T/0"), EXT_DAMAGE[kind]),
    )
    report = assert_made_good(with_ext, root)
    assert any("are corrupt" in note for note in report.notes)


@pytest.mark.parametrize("nbytes", [0, 50, 2047, 4096])
def test_ext_file_of_another_length_is_rebuilt(with_ext: Path, tmp_path: Path, nbytes: int) -> None:
    def truncate(root: Path) -> None:
        path = first_file(root, "consumequeue_ext/T/0")
        path.write_bytes((path.read_bytes() + bytes(2048))[:nbytes])

    assert_made_good(with_ext, damaged(with_ext, tmp_path, truncate))


@pytest.mark.parametrize("folder", ["T/0", "."])
def test_lost_ext_files_are_rebuilt(with_ext: Path, tmp_path: Path, folder: str) -> None:
    root = damaged(
        with_ext, tmp_path, lambda root: shutil.rmtree(root / "consumequeue_ext" / folder)
    )
    sizes = {**SIZES, "enable_consume_queue_ext": True}
    assert_made_good(with_ext, root, **sizes)


def test_without_ext_files_units_get_their_tags_codes_back(with_ext: Path, tmp_path: Path) -> None:
    root = damaged(with_ext, tmp_path, lambda root: shutil.rmtree(root / "consumequeue_ext"))
    with rocketstore.open(root, "r+") as store:
        count = len(store.get_message("g", "T", 0, 0, filter=TagFilter("TagA")).messages)
        assert len(store.filter_units("T", 0, "TagA")) >= count
    units = UNIT.struct.iter_unpack(first_file(root, "consumequeue/T/0").read_bytes())
    assert all(-(2**31) <= code < 2**31 for _, _, code in units)


@pytest.mark.parametrize("address", [-(2**63) + 5, -(2**63) + 2**40, -(2**31) - 1, -(2**63) + 2047])
def test_ext_address_out_of_range(with_ext: Path, tmp_path: Path, address: int) -> None:
    def change_address(root: Path) -> None:
        def change(content: bytearray) -> None:
            put_unit(content, 4, *unit(content, 4)[:2], address)

        rewrite(first_file(root, "consumequeue/T/0"), change)

    root = damaged(with_ext, tmp_path, change_address)
    with rocketstore.open(root, "r", derive="none") as store:
        # As in RocketMQ: its tag is unknown, so every filter accepts it.
        result = store.get_message("g", "T", 0, 4, 1, filter=TagFilter("no such tag"))
        assert [message.queue_offset for message in result.messages] == [4]
        findings = store.verify().findings
        assert any("ext files" in finding.reason for finding in findings)
    assert_made_good(with_ext, root)


# --- light queues ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with light queues as RocketMQ left it."""
    return golden_stores.unpack("lmq-5.3.3", tmp_path_factory.mktemp("light"))


@pytest.mark.parametrize("name", ["%LMQ%a", "%LMQ%b", "%LMQ%c"])
def test_c07_lost_light_queue_comes_back(with_light: Path, tmp_path: Path, name: str) -> None:
    root = damaged(with_light, tmp_path, lambda root: shutil.rmtree(root / "consumequeue" / name))
    with rocketstore.open(root, "r", derive="none") as store:
        assert any(
            name in finding.reason and "names it" in finding.reason
            for finding in store.verify().findings
        )
    assert_made_good(with_light, root)


def test_c04_light_queue_with_a_record_that_does_not_name_it(
    with_light: Path, tmp_path: Path
) -> None:
    other = first_file(with_light, "consumequeue/T/0").read_bytes()

    def point_elsewhere(root: Path) -> None:
        path = first_file(root, "consumequeue/%LMQ%a/0")
        rewrite(path, lambda c: put_unit(c, 1, *unit(other, 5)))

    root = damaged(with_light, tmp_path, point_elsewhere)
    with rocketstore.open(root, "r", derive="none") as store:
        assert not store.get_message("g", "%LMQ%a", 0, 1, 1).messages
    assert_made_good(with_light, root)
