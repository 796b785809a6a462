"""A group's places: on disk, beside other tables, in stores of every mode and kind."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.config_managers import ConsumerFilterManager, ConsumerOffsetManager
from rocketstore.errors import (
    CorruptionError,
)
from support.consumed_stores import PATIENCE_S, Store, everything, fill, numbers


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path / "s", "a", message_delay_level="1s " * 6) as opened:
        yield opened


# --- offsets on disk ------------------------------------------------------------------------------


def committed(root: Path) -> dict[int, int]:
    manager = ConsumerOffsetManager(root)
    manager.load()
    return manager.query_offsets("g", "T")


def test_commits_are_written_at_intervals_and_at_once(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rocketstore.open(root, "a", flush_consumer_offset_interval=20) as store:
        fill(store, 100)
        with store.consumer("g", "T") as consumer:
            messages = iter(consumer)
            for _ in range(31):
                next(messages)
            deadline = time.monotonic() + PATIENCE_S
            while committed(root) != {0: 30}:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    with rocketstore.open(root, "r+", flush_consumer_offset_interval=3_600_000) as store:
        consumer = store.consumer("g", "T")
        messages = iter(consumer)
        for _ in range(11):
            next(messages)
        consumer.commit()
        assert committed(root) == {0: 30}
        consumer.commit(sync=True)
        assert committed(root) == {0: 40}
        next(messages)
    assert committed(root) == {0: 41}


def test_entries_of_others_are_kept(store: Store) -> None:
    fill(store, 3)
    store.consumer("g", "T").close()
    other = ConsumerOffsetManager(store.path)
    other.load()
    other.commit_offset("elsewhere", "T", 7, 70)
    other.persist()
    assert everything(store) == [0, 1, 2]
    other.load()
    assert other.query_offset("elsewhere", "T", 7) == 70
    assert other.query_offset("g", "T", 0) == 3


@pytest.mark.parametrize(("version", "has_version"), [("4.9.8", False), ("5.3.3", True)])
def test_the_file_is_that_of_the_version(tmp_path: Path, version: str, has_version: bool) -> None:
    with rocketstore.open(tmp_path / "s", "a", broker_version=version) as store:
        fill(store, 3)
        everything(store)
    text = (tmp_path / "s" / "config" / "consumerOffset.json").read_text()
    assert ("dataVersion" in text) == has_version
    assert "T@g" in text


def test_a_damaged_table_of_offsets_is_an_error(store: Store) -> None:
    fill(store, 1)
    path = store.path / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{")
    with pytest.raises(CorruptionError, match="consumerOffset"):
        store.consumer("g", "T")
    path.unlink()
    assert everything(store) == [0]


def test_a_store_that_is_only_read_commits_to_memory(store: Store) -> None:
    fill(store, 5)
    store.wait_dispatched()
    with (
        rocketstore.open(store.path, "r") as reading,
        reading.consumer("g", "T", ack="manual") as consumer,
    ):
        found = consumer.poll()
        assert numbers(found) == [0, 1, 2, 3, 4]
        consumer.ack(found[0])
        consumer.commit(sync=True)
        assert consumer.positions == {("T", 0): 1}
        for call in (consumer.retry, consumer.dead):
            with pytest.raises(io.UnsupportedOperation):
                call(found[1])
    assert not (store.path / "config" / "consumerOffset.json").exists()


def test_nothing_of_it_is_imported_for_others() -> None:
    program = (
        "import sys, tempfile, rocketstore\n"
        "store = rocketstore.open(tempfile.mkdtemp() + '/s', 'a')\n"
        "store.put('T', b'x'); store.wait_dispatched(); store.get_message('g', 'T', 0, 0)\n"
        "store.close()\n"
        "print([name for name in sys.modules if name.startswith('rocketstore.consumer')])\n"
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_d_51_a_retry_keeps_a_property_without_a_value(store: Store) -> None:
    store.put("T", b"x", properties={"empty": "", "full": "v"})
    with store.consumer("g", "T", ack="manual") as consumer:
        consumer.retry(consumer.poll()[0], 1)
        (again,) = consumer.poll(timeout_s=PATIENCE_S)
        assert b"empty\x01\x02" in again.stored.properties_bytes
        assert again.properties["full"] == "v"


def test_a_filter_makes_bit_maps(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "enable_consume_queue_ext": True,
        "enable_calc_filter_bit_map": True,
    }
    with (
        rocketstore.open(tmp_path / "s", "a", **options) as store,
        store.consumer("g", "T", filter="TAGS = 'odd'", idle_timeout_s=0) as consumer,
    ):
        fill(store, 10)
        assert numbers(consumer) == [1, 3, 5, 7, 9]
    manager = ConsumerFilterManager(tmp_path / "s")
    manager.load()
    found = manager.get("T", "g")
    assert found is not None
    assert found.expression == "TAGS = 'odd'"


def test_light_queues_are_consumed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}
    with rocketstore.open(tmp_path / "s", "a", **options) as store:
        for number in range(40):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if number % 3 == 0 else {}
            store.put("T", b"%d" % number, properties=properties)
        store.wait_dispatched()
        wanted = list(range(0, 40, 3))
        with store.consumer("g", ["%LMQ%a", "T"], ack="manual", idle_timeout_s=0) as consumer:
            found = list(consumer)
            assert sorted(numbers(found)) == sorted([*wanted, *range(40)])
            for message in found[:5]:
                consumer.ack(message)
            assert consumer.positions["%LMQ%a", 0] == 5
        with store.consumer("h", "%LMQ%a") as consumer:
            for count, _ in enumerate(consumer):
                assert consumer.positions == {("%LMQ%a", 0): count}
                if count == 9:
                    break
        assert everything(store, "h", topics="%LMQ%a") == wanted[9:]


def test_a_reader_older_than_the_table_reads_the_files_again(store: Store) -> None:
    fill(store, 5)
    store.wait_dispatched()
    with rocketstore.open(store.path, "r") as reading:
        consumer = reading.consumer("g", "T", idle_timeout_s=0)
        assert numbers(consumer) == [0, 1, 2, 3, 4]
        consumer.close()
        fill(store, 5, first=5)
        offsets = ConsumerOffsetManager(store.path)
        offsets.commit_offset("g", "U", 0, 3)
        offsets.persist()
        consumer = reading.consumer("g", "U", idle_timeout_s=0)
        reader = reading.reader
        fill(store, 5, topic="U")
        store.wait_dispatched()
        assert reading.reader is reader
        assert numbers(consumer) == [3, 4]
        consumer.close()
