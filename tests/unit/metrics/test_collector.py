"""Metrics, read by Prometheus' own parser."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rocketstore
from rocketstore.cli.app import app
from rocketstore.errors import StoreClosedError
from rocketstore.metrics import StoreCollector, exposition, serve
from support.command_line import CliRunner

OPTIONS = {"mapped_file_size_commit_log": 1 << 20}


def samples(text: str) -> dict[tuple[str, str | None], Any]:
    return {
        (sample.name, sample.labels.get("topic")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_answers_under_rocketmqs_names(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        for number in range(5):
            store.put('T"opic'.replace('"', "-"), b"x", number % 2)
        store.put("T", b"d", delay_level=3)
        store.wait_dispatched()
        store.flush()
        server, thread = serve(store, 0, cluster="C", node_id="n")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            found = samples(answer.read().decode())
        server.shutdown()
        thread.join()
        server.server_close()
        stats = store.stats()
        used = stats.disk_total_nbytes - stats.disk_free_nbytes
    own = {"cluster": "C", "node_type": "broker", "node_id": "n"}
    count = found["rocketmq_messages_in_total", "T-opic"]
    assert count.value == 5
    assert count.labels == {
        **own,
        "topic": "T-opic",
        "is_system": "false",
        "message_type": "normal",
    }
    assert found["rocketmq_messages_in_total", "SCHEDULE_TOPIC_XXXX"].labels["is_system"] == "true"
    stored = found["rocketmq_storage_size", None]
    assert stored.value == used > 1 << 20
    assert stored.labels == {**own, "storage_type": "local", "storage_medium": "disk"}
    assert found["rocketmq_storage_flush_behind_bytes", None].value == 0
    assert found["rocketmq_storage_dispatch_behind_bytes", None].value == 0
    assert found["rocketmq_storage_message_reserve_time", None].value >= 0
    assert found["rocketmq_topic_number", None].value == 2


def test_an_empty_store_and_a_closed_one(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        collector = StoreCollector(store)
        found = samples(exposition(collector))
        assert found["rocketmq_storage_size", None].value > 0
        assert ("rocketmq_storage_message_reserve_time", None) not in found
    with pytest.raises(StoreClosedError):
        exposition(collector)


# --- messages by type, transactions, consumers ---


def figures(store: rocketstore.DefaultMessageStore, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by their labels in the order of their names, without the store's."""
    text = exposition(StoreCollector(store))
    return {
        tuple(
            value
            for label, value in sorted(sample.labels.items())
            if label not in ("cluster", "node_id", "node_type", "storage_type", "storage_medium")
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_messages_are_counted_by_type_from_the_opening_on(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        store.put("T", b"before")
    with rocketstore.open(tmp_path / "s", "r+") as store:
        for number in range(3):
            store.put("T", b"%d" % number, keys="k")
        ordered = store.put("T", b"f", properties={"__SHARDINGKEY": "1"})
        store.put("T", b"both", properties={"__SHARDINGKEY": "1"}, delay_level=1)
        store.put("T", b"d", delay_level=3)
        count = figures(store, "rocketmq_messages_in_total")
        assert count == {
            ("false", "normal", "T"): 3,
            ("false", "fifo", "T"): 1,
            ("true", "fifo", "SCHEDULE_TOPIC_XXXX"): 1,
            ("true", "delay", "SCHEDULE_TOPIC_XXXX"): 1,
        }
        bytes_in = figures(store, "rocketmq_throughput_in_total")
        assert bytes_in.keys() == count.keys()
        assert bytes_in["false", "fifo", "T"] == ordered.nbytes
        opened = store.max_physical_offset - sum(bytes_in.values())
        assert next(store.scan(start=int(opened))).body == b"0"
        store.put("T", b"more")
        assert figures(store, "rocketmq_messages_in_total")["false", "normal", "T"] == 4


def test_a_follower_counts_what_the_writer_puts(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as writer:
        writer.put("T", b"before")
        writer.flush()
        with rocketstore.open(tmp_path / "s") as store:
            assert figures(store, "rocketmq_messages_in_total") == {}
            writer.put("T", b"x", properties={"__SHARDINGKEY": "1"})
            writer.flush()
            store.refresh()
            assert figures(store, "rocketmq_messages_in_total") == {("false", "fifo", "T"): 1}
            assert figures(store, "rocketmq_broker_permission") == {(): 4}


def test_transactions(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        store.begin("Orders", b"1", group="g").commit()
        store.begin("Orders", b"2", group="g").rollback()
        undecided = store.begin("Orders", b"3", group="g").transaction_id
        store.wait_dispatched()
        assert figures(store, "rocketmq_messages_in_total") == {
            ("true", "transaction", "RMQ_SYS_TRANS_HALF_TOPIC"): 3
        }
        assert figures(store, "rocketmq_commit_messages_total") == {("Orders",): 1}
        assert figures(store, "rocketmq_half_messages") == {("Orders",): 1}
        assert store.stats().half_messages == {"Orders": 1}
        end = store.max_physical_offset
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert figures(store, "rocketmq_half_messages") == {("Orders",): 1}
        assert figures(store, "rocketmq_commit_messages_total") == {}
        assert store.max_physical_offset == end  # asking writes nothing
        store.transaction(undecided).rollback()
        assert figures(store, "rocketmq_half_messages") == {}


def test_consumers(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    with rocketstore.open(tmp_path / "s", "x", clock=lambda: now, **OPTIONS) as store:
        for number in range(10):
            store.put("T", b"%d" % number, number % 2)
        store.wait_dispatched()
        with store.consumer("g", "T", ack="manual", max_count=3) as consumer:
            first, second, third = consumer.poll(3)
            consumer.ack(first)
            consumer.dead(second)
            consumer.commit()
            now += 5000
            label = ("g", "false", "false", "T")
            lag = {name: figures(store, f"rocketmq_consumer_{name}")[label] for name in (
                "lag_messages", "lag_latency", "inflight_messages", "ready_messages",
                "queueing_latency",
            )}  # fmt: skip
            assert lag == {
                "lag_messages": 8, "lag_latency": 5000, "inflight_messages": 1,
                "ready_messages": 7, "queueing_latency": 5000,
            }  # fmt: skip
            consumer.ack(third)
        store.wait_dispatched()
        assert figures(store, "rocketmq_consumer_inflight_messages")[label] == 0
        assert figures(store, "rocketmq_consumer_lag_messages")[label] == 7
        assert store.stats().consumer_lag is not None
        assert store.stats().consumer_lag["g"] == 7
        assert figures(store, "rocketmq_send_to_dlq_messages_total") == {("g", "false", "T"): 1}
        assert figures(store, "rocketmq_consumer_group_number") == {(): 1}
        assert set(figures(store, "rocketmq_messages_in_total")) == {("false", "normal", "T")}


def test_messages_out_are_those_that_consumers_pulled(tmp_path: Path) -> None:
    label = ("g", "false", "false", "T")
    with rocketstore.open(tmp_path / "s", "x", message_delay_level="1s 1s", **OPTIONS) as store:
        for number in range(10):
            store.put("T", b"%d" % number, number % 2)
        store.wait_dispatched()
        assert figures(store, "rocketmq_messages_out_total") == {}
        store.get_message("g", "T", 0, 0)
        assert figures(store, "rocketmq_messages_out_total") == {}  # no consumer of the group
        with store.consumer("g", "T", ack="manual", idle_timeout_s=0) as consumer:
            for message in consumer.poll(4):
                consumer.ack(message)
            assert figures(store, "rocketmq_messages_out_total") == {label: 4}
            last = consumer.poll(100)[-1]
            consumer.retry(last, 1)
            for message in consumer.poll(1, timeout_s=60):
                consumer.ack(message)
            retried = ("g", "true", "false", "%RETRY%g")
            assert figures(store, "rocketmq_messages_out_total") == {label: 10, retried: 1}
        assert figures(store, "rocketmq_messages_out_total") == {label: 10, retried: 1}
        with store.consumer("g", "T", idle_timeout_s=0) as consumer:
            assert len(list(consumer)) == 5  # not settled before
        del consumer
        assert figures(store, "rocketmq_messages_out_total") == {label: 15, retried: 1}


def test_topics_and_groups_are_those_of_the_tables(tmp_path: Path) -> None:
    from rocketstore.config_managers import (
        SubscriptionGroupConfig,
        SubscriptionGroupManager,
        TopicConfig,
        TopicConfigManager,
    )

    topics, groups = TopicConfigManager(tmp_path / "s"), SubscriptionGroupManager(tmp_path / "s")
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        for name in ("A", "B", "C"):
            topics.update_topic_config(TopicConfig(topic_name=name))
        groups.update_subscription_group_config(SubscriptionGroupConfig(group_name="g"))
        topics.persist()
        groups.persist()
        store.put("A", b"x")
        store.wait_dispatched()
        assert figures(store, "rocketmq_topic_number") == {(): 3}
        assert figures(store, "rocketmq_consumer_group_number") == {(): 1}
        assert figures(store, "rocketmq_broker_permission") == {(): 6}
        for path in (tmp_path / "s" / "config").glob("topics.json*"):
            path.write_text("{")
        assert figures(store, "rocketmq_topic_number") == {}


def test_a_damaged_table_of_offsets_costs_its_figures_only(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_text("{")
    with rocketstore.open(root) as store:
        assert store.stats().consumer_lag is None
        assert figures(store, "rocketmq_consumer_lag_messages") == {}
        assert figures(store, "rocketmq_topic_number") == {(): 1}


# --- rocketstore stats ---


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_commit_log=1 << 20) as store:
        store.put("T", b"x")
    return tmp_path / "s"


def test_runtime_info_of_a_stopped_store(root: Path) -> None:
    code, output = run("stats", root, "-f", "json")
    info = json.loads(output)
    with rocketstore.open(root) as store:
        assert info["commitLogMaxOffset"] == str(store.max_physical_offset)
        assert info.keys() == store.runtime_info().keys()
    code, output = run("stats", root, "-f", "table")
    assert (code, "dispatchBehindBytes" in output) == (0, True)


def test_prometheus(root: Path) -> None:
    code, output = run("stats", root, "--prometheus")
    names = {family.name for family in text_string_to_metric_families(output)}
    assert code == 0
    assert {"rocketmq_messages_in", "rocketmq_storage_size"} <= names
    code, output = run("stats", root, "--prometheus", "-f", "json")
    assert (code, "--format" in output) == (2, True)


def test_watch_shows_what_another_process_wrote(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = iter((True, False))

    def put_or_end(seconds: float) -> None:
        assert seconds == 2.5
        if not next(pauses):
            raise KeyboardInterrupt
        with rocketstore.open(root, "r+") as store:
            store.put("T", b"y")

    monkeypatch.setattr(time, "sleep", put_or_end)
    code, output = run("stats", root, "--watch", "2.5", "-f", "ndjson")
    first, second = (
        int(json.loads(line)["commitLogMaxOffset"])
        for line in output.splitlines()
        if line.startswith("{")
    )
    assert (code, second == 2 * first) == (130, True)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_watch_refuses_what_is_no_pause(root: Path, seconds: str) -> None:
    code, output = run("stats", root, f"--watch={seconds}")
    assert (code, "--watch" in output) == (2, True)
