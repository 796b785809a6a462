"""The checkpoint of every RocketMQ line: what is read of any length, what is written by version,
and byte 40, which 5.5 believes."""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import Crafted
from golden import golden_stores
from rocketstore.directory.checkpoint import StoreCheckpoint, signed_crc
from rocketstore.directory.state import StoreState

VALUES = (1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003, 4, 5, 6)


def read(root: Path) -> StoreCheckpoint:
    content = (root / "checkpoint").read_bytes()
    assert len(content) == 4096
    assert not content[48:].strip(b"\0")
    return StoreCheckpoint.from_bytes(content)


def write(root: Path, **values: int) -> None:
    """A checkpoint as a broker left it, without a state file."""
    StoreCheckpoint.read(root / "checkpoint", root).replace(**values).write(root / "checkpoint")


def test_layout() -> None:
    content = StoreCheckpoint(*VALUES).to_bytes()
    assert content == struct.pack(">6q", *VALUES).ljust(4096, b"\0")
    assert StoreCheckpoint.from_bytes(content) == StoreCheckpoint(*VALUES)


@pytest.mark.parametrize("nbytes", [*range(50), 100, 4095, 4096, 4097, 1 << 20])
def test_any_length_is_read_as_far_as_it_goes(tmp_path: Path, nbytes: int) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(StoreCheckpoint(*VALUES).to_bytes()[:nbytes].ljust(nbytes, b"\0"))
    found = StoreCheckpoint.read(path, tmp_path)
    values = struct.unpack(">6q", struct.pack(">6q", *VALUES)[:nbytes].ljust(48, b"\0"))
    assert found == StoreCheckpoint(*values)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def build(root: Path, version: str) -> None:
    """A store of twenty messages that every line can hold."""
    with rocketstore.open(
        root, "x", clock=crafted.Clock(), broker_version=version, **crafted.OPTIONS
    ) as store:
        for number in range(20):
            assert store.put("T", b"body", number % 2, "Tag", f"k{number}").ok


LINES = {
    "4.9.0": 24,
    "4.9.8": 24,
    "5.0.0": 32,
    "5.1.0": 32,
    "5.1.1": 40,
    "5.1.4": 40,
    "5.3.3": 40,
    "5.4.0": 40,
    "5.5.0": 48,
    "5.5.9": 48,
}


@pytest.mark.parametrize(("version", "nbytes"), LINES.items())
def test_what_each_line_writes(root: Path, version: str, nbytes: int) -> None:
    build(root, version)
    with rocketstore.open(root) as store:
        messages = list(store.scan())
        last = messages[-1]
    found = read(root)
    assert found.physic_timestamp == found.logics_timestamp == last.store_timestamp
    assert found.index_timestamp <= found.physic_timestamp
    assert found.master_flushed_offset == 0
    assert found.confirm_physical_offset == (last.physical_offset if nbytes >= 40 else 0)
    assert found.logics_physical_offset == (last.physical_offset if nbytes == 48 else 0)


@pytest.mark.parametrize("version", LINES)
@pytest.mark.parametrize("puts", [0, 1])
def test_byte_40_that_is_a_record_start_is_kept(root: Path, version: str, puts: int) -> None:
    """Versions before 5.5 ignore it and keep it; it may lag but never be ahead."""
    build(root, version)
    with rocketstore.open(root) as store:
        starts = [message.physical_offset for message in store.scan()]
    start, newest = starts[7], starts[-1]
    write(root, logics_physical_offset=start)
    with rocketstore.open(root, "r+", broker_version=version) as store:
        last = None
        for _ in range(puts):
            last = store.put("T", b"x").physical_offset
    found = read(root).logics_physical_offset
    if LINES[version] < 48:
        assert found == start
    else:
        # 5.5 names the newest record of which the queues are on disk.
        assert found in ((last,) if puts else (start, newest))


@pytest.mark.parametrize("version", LINES)
def test_byte_40_that_is_no_record_start_becomes_0(root: Path, version: str) -> None:
    """With enableAcceleratedRecovery, 5.5 truncates its log there; above the log's end it
    dispatches too little."""
    build(root, version)
    with rocketstore.open(root) as store:
        end = store.max_physical_offset
        starts = [message.physical_offset for message in store.scan()]
    start = starts[7]
    for wrong in (start + 1, start - 1, 5, end, end + 1, 2**40, 2**63 - 1, -1, -(2**63)):
        write(root, logics_physical_offset=wrong)
        with rocketstore.open(root, "r+", broker_version=version):
            pass
        allowed = (0,) if LINES[version] < 48 else (0, starts[-1])
        assert read(root).logics_physical_offset in allowed, wrong


def test_byte_40_of_a_record_that_recovery_truncated_becomes_0(root: Path, tmp_path: Path) -> None:
    crafted.build(tmp_path / "template", broker_version="5.3.3")
    store = Crafted(tmp_path / "template", root)
    target, following = store.records[-6], store.records[-3]
    store.write(target.offset, target.with_number("magic", 0))
    write(root, logics_physical_offset=following.offset)
    store.set_state(target.offset)
    store.zero_from(target.end)
    store.crashed()
    with rocketstore.open(root, "r+") as writer:
        assert writer.recovery_report.cut
        assert writer.max_physical_offset == target.offset
    found = read(root)
    assert found.logics_physical_offset == 0
    newest = store.records[-7].store_timestamp
    assert found.physic_timestamp == newest
    assert max(found.logics_timestamp, found.index_timestamp) <= newest
    assert found.confirm_physical_offset <= target.offset


def test_byte_40_below_the_first_file_becomes_0(root: Path, tmp_path: Path) -> None:
    crafted.build(tmp_path / "template", broker_version="5.3.3")
    store = Crafted(tmp_path / "template", root)
    first = store.records[3]
    write(root, logics_physical_offset=first.offset)
    for path in store.segments()[:1]:
        path.unlink()
    assert first.offset < store.segment_size
    with rocketstore.open(root, "r+") as writer:
        assert writer.min_physical_offset == store.segment_size
    assert read(root).logics_physical_offset == 0


@pytest.mark.parametrize("value", [-1, -(2**63), 2**62, 2**63 - 1])
@pytest.mark.parametrize("version", ["4.9.8", "5.1.4", "5.5.0"])
def test_what_is_ahead_or_negative_is_not_written_again(
    root: Path, version: str, value: int
) -> None:
    """Opening and closing alone is enough to mend it."""
    build(root, version)
    newest = read(root).physic_timestamp
    with rocketstore.open(root) as store:
        end = store.max_physical_offset
        last = list(store.scan())[-1].physical_offset
    (root / "checkpoint").write_bytes(StoreCheckpoint(*[value] * 6).to_bytes())
    with rocketstore.open(root, "r+", broker_version=version):
        pass
    found = read(root)
    assert 0 <= found.physic_timestamp <= newest
    assert 0 <= found.logics_timestamp <= newest
    assert 0 <= found.index_timestamp <= newest
    assert 0 <= found.confirm_physical_offset <= end
    assert found.master_flushed_offset >= 0
    assert found.logics_physical_offset in ((0,) if LINES[version] < 48 else (0, last))


@pytest.mark.parametrize("name", golden_stores.names("plain-", "broker-"))
def test_checkpoints_of_rocketmq_stay_true(tmp_path: Path, name: str) -> None:
    root = golden_stores.unpack(name, tmp_path)
    before: Any = read(root)
    with rocketstore.open(root, "r+") as store:
        times = [m.store_timestamp for m in store.scan()]
        starts = {m.physical_offset for m in store.scan()}
    found = read(root)
    assert found.physic_timestamp in (before.physic_timestamp, max(times))
    assert found.logics_timestamp <= found.physic_timestamp
    assert found.logics_physical_offset in {0, *starts}
    assert found.logics_physical_offset >= before.logics_physical_offset
    if not name.endswith("5.5.0"):
        assert found.logics_physical_offset == before.logics_physical_offset


LARGER: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 500,
    "max_index_num": 2000,
}


def written_together(root: Path) -> tuple[int, StoreCheckpoint]:
    """The flushed offset of the state file, and the checkpoint that was written right after it:
    services write both while a test reads one after the other."""
    while True:
        state = StoreState.read(root / "rocketstore.state", root)
        content = (root / "checkpoint").read_bytes()
        if state is not None and state.checkpoint_crc == signed_crc(content):
            return state.flushed_offset, StoreCheckpoint.from_bytes(content)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
@pytest.mark.parametrize(
    "options",
    [
        {"flush_disk_type": "SYNC_FLUSH"},
        {"flush_disk_type": "ASYNC_FLUSH"},
        {"flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_enable": True},
    ],
    ids=["sync", "async", "pool"],
)
def test_no_time_and_no_place_is_ahead_of_the_disk(
    root: Path, version: str, options: dict[str, Any]
) -> None:
    """A thread puts all the time; each checkpoint's times are of records below its flushed
    offset."""
    stop = threading.Event()

    def put_on(store: rocketstore.DefaultMessageStore) -> None:
        while not stop.wait(0.0005):
            for _ in range(5):
                store.put("T", b"body", 0, "Tag", "key", wait_store_msg_ok=False)

    marks: list[tuple[int, StoreCheckpoint]] = []
    with rocketstore.open(
        root, "x", clock=crafted.Clock(), broker_version=version, **{**LARGER, **options}
    ) as store:
        putter = threading.Thread(target=put_on, args=(store,))
        putter.start()
        try:
            while len(marks) < 12 or not marks[-1][1].physic_timestamp:
                store.flush()
                marks.append(written_together(root))
        finally:
            stop.set()
            putter.join(120)
        times = {message.physical_offset: message.store_timestamp for message in store.scan()}
        ends = {m.physical_offset + m.store_size: m.store_timestamp for m in store.scan()}
    for flushed, found in marks:
        newest = max((time for end, time in ends.items() if end <= flushed), default=0)
        assert found.physic_timestamp <= newest
        assert found.logics_timestamp <= newest
        assert found.index_timestamp <= newest
        assert found.logics_physical_offset in (0, *times)
        assert found.logics_physical_offset <= flushed


def test_a_flush_by_another_thread_gives_no_time_of_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended between the sync and the checkpoint of the first: the time was the later one's, the
    flushed offset was not."""
    with rocketstore.open(
        root, "x", clock=crafted.Clock(), flush_disk_type="SYNC_FLUSH", **LARGER
    ) as store:
        store.put("T", b"body")
        writer = store._writer
        assert writer is not None
        flush = writer.flushed.flush

        def flush_and_put() -> int:
            flushed = flush()
            if threading.current_thread() is threading.main_thread():
                monkeypatch.setattr(writer.flushed, "flush", flush)
                store.put("T", b"later", wait_store_msg_ok=False)
                flush()
            return flushed

        monkeypatch.setattr(writer.flushed, "flush", flush_and_put)
        store.flush()
        flushed, found = written_together(root)
        times = {m.physical_offset + m.store_size: m.store_timestamp for m in store.scan()}
    assert found.physic_timestamp == times[flushed]


def test_an_index_file_filled_while_the_log_was_synced_gives_no_time_yet(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records beyond the flushed offset are dispatched between the log's sync and the index's."""
    with rocketstore.open(
        root, "x", clock=crafted.Clock(), flush_disk_type="ASYNC_FLUSH", **LARGER
    ) as store:
        store.put("T", b"body", 0, "Tag", "key")
        writer = store._writer
        assert writer is not None
        flush = writer.flushed.flush

        def flush_and_go_on() -> int:
            flushed = flush()
            for _ in range(2 * LARGER["max_index_num"]):
                store.put("T", b"body", 0, "Tag", "key")
            writer.reput.drain()
            return flushed

        with monkeypatch.context() as patched:
            patched.setattr(writer.flushed, "flush", flush_and_go_on)
            store.flush()
        assert len(writer.index.files) > 1
        found, state = read(root), StoreState.read(root / "rocketstore.state", root)
        assert state is not None
        times = {m.physical_offset + m.store_size: m.store_timestamp for m in store.scan()}
        newest = max(time for end, time in times.items() if end <= state.flushed_offset)
        assert found.index_timestamp <= newest
        assert state.flushed_offset < store.max_physical_offset
    assert read(root).index_timestamp > newest  # written when it is closed
