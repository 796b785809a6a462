"""Options of the Spark source: names, values, messages. Nothing here needs Spark."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from rocketstore.errors import ConfigError, FilterWarning
from rocketstore.spark.base.options import (
    ReadOptions,
    canonical,
    parse_offsets,
    parse_read,
    parse_write,
)


def read(**options: str) -> ReadOptions:
    return parse_read({"path": "/data/store", **options})


def test_a_path_is_enough() -> None:
    assert read() == ReadOptions("/data/store")
    assert read().filters() == dict.fromkeys(
        ("topics", "tags", "keys", "queue_ids", "begin", "end", "filter")
    )


@pytest.mark.parametrize("options", [{}, {"path": ""}, {"path": "  "}])
def test_a_path_is_needed(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="path"):
        parse_read(options)


@pytest.mark.parametrize(
    ("option", "value", "field", "expected"),
    [
        ("subscribe", "A, B,A", "topics", ("A", "B")),
        ("TOPIC", "A", "topics", ("A",)),
        ("subscribePattern", "Order.*", "topic_pattern", "Order.*"),
        ("assign", '{"A": [1, 0, 1]}', "queue_ids", {"A": (1, 0)}),
        ("tags", "x || y||x", "tags", ("x", "y")),
        ("tags", "*", "tags", None),
        ("tags", " ", "tags", None),
        ("keys", "k1  k2", "keys", ("k1", "k2")),
        ("filter", "n > 5", "filter", ("n > 5", "5.5.0", False)),
        ("startingOffsets", "Earliest", "starting_offsets", "earliest"),
        ("endingoffsets", "latest", "ending_offsets", "latest"),
        ("startingOffsets", '{"A": {"0": 23, "1": -2}}', "starting_offsets", {"A": {0: 23, 1: -2}}),
        ("startingTimestamp", "1700000000000", "starting_timestamp", 1700000000000),
        ("endingTimestamp", "0", "ending_timestamp", 0),
        ("startingPhysicalOffset", "1024", "starting_physical_offset", 1024),
        ("endingPhysicalOffset", "9223372036854775807", "ending_physical_offset", 2**63 - 1),
        ("failOnDataLoss", "FALSE", "fail_on_data_loss", False),
        ("onCorruption", "Skip", "on_corruption", "skip"),
        ("maxOffsetsPerTrigger", "10", "max_offsets_per_trigger", 10),
        ("maxBytesPerTrigger", "10m", "max_bytes_per_trigger", 10 << 20),
        ("minPartitions", "7", "min_partitions", 7),
        ("maxRecordsPerPartition", "1000", "max_records_per_partition", 1000),
        ("maxPartitionBytes", "64MiB", "max_partition_bytes", 64 << 20),
        ("maxPartitionBytes", "1g", "max_partition_bytes", 1 << 30),
        ("columns", "topic,body", "columns", "topic,body"),
        ("includeProperties", "true", "include_properties", True),
        ("includeHeaders", "true", "include_properties", True),
        ("batchRows", "100", "batch_rows", 100),
        ("batchBytes", "65536", "batch_bytes", 65536),
        ("checkCrc", "false", "check_crc", False),
        ("storageOptions", '{"key": "K"}', "storage_options", {"key": "K"}),
    ],
)
def test_options_are_read(option: str, value: str, field: str, expected: Any) -> None:
    assert getattr(read(**{option: value}), field) == expected


@pytest.mark.parametrize(
    ("option", "nearest"),
    [
        ("subscibe", "subscribe"),
        ("startingoffset", "startingOffsets"),
        ("max_partition_bytes", "maxPartitionBytes"),
        ("topics", "topic"),
        ("includeheader", "includeHeaders"),
        ("checkcrcs", "checkCrc"),
    ],
)
def test_an_unknown_option_names_the_nearest(option: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}' is not an option.*did you mean '{nearest}'"):
        read(**{option: "x"})


def test_an_error_lists_the_options_if_none_is_similar() -> None:
    with pytest.raises(ConfigError, match=r"'zzz' is not an option.*must be one of .*checkCrc"):
        read(zzz="1")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("subscribe", " , ", "subscribe is empty"),
        ("subscribePattern", "(", "not a regular expression"),
        ("subscribePattern", "", "subscribePattern is empty"),
        ("assign", "A:0", "assign is 'A:0'; it must be JSON"),
        ("assign", "{}", "names no topic"),
        ("assign", '{"A": 1}', "it must be JSON"),
        ("assign", '{"A": [true]}', "it must be JSON"),
        ("assign", '{"A": [-1]}', "it must be JSON"),
        ("keys", "", "keys is empty"),
        ("startingOffsets", "newest", "earliest, latest or JSON"),
        ("startingOffsets", "{", "must be JSON"),
        ("startingOffsets", '{"A": 1}', "earliest, latest or JSON"),
        ("startingOffsets", '{"A": {"x": 1}}', "earliest, latest or JSON"),
        ("startingOffsets", '{"A": {"0": 1.5}}', "earliest, latest or JSON"),
        ("startingOffsets", '{"A": {"0": -3}}', "-3 of 'A' is not a queue offset"),
        ("startingOffsets", '{"A": {"b1": {"0": 1}, "b2": {"0": 1}}}', "names several"),
        ("startingTimestamp", "yesterday", "startingTimestamp is 'yesterday'; it must be a whole"),
        ("startingTimestamp", "-1", "0 or more"),
        ("endingPhysicalOffset", "9223372036854775808", "0 or more"),
        ("startingPhysicalOffset", "1e3", "whole number"),
        ("failOnDataLoss", "yes", "must be true or false"),
        ("onCorruption", "ignore", "one of fail, skip, stop"),
        ("minPartitions", "0", "1 or more"),
        ("maxPartitionBytes", "0", "must be a size"),
        ("maxPartitionBytes", "many", "must be a size"),
        ("batchRows", "0", "from 1 to 1048576"),
        ("batchRows", "1048577", "from 1 to 1048576"),
        ("batchBytes", "2g", "at most 512 MiB"),
        ("columns", "", "columns is empty"),
        ("checkCrc", "1", "must be true or false"),
        ("storageOptions", "[1]", "storageOptions is '\\[1\\]'; it must be JSON"),
    ],
)
def test_wrong_values_are_reported(option: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**{option: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "A", "assign": '{"A": [0]}'}, "only one of subscribe and assign"),
        ({"subscribe": "A", "subscribePattern": "A"}, "only one of"),
        ({"subscribe": "A", "topic": "B"}, "subscribe is given twice"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "startingTimestamp 2 is after"),
        (
            {"startingPhysicalOffset": "2", "endingPhysicalOffset": "1"},
            "startingPhysicalOffset 2 is after",
        ),
        ({"subscribe": "A", "startingOffsets": '{"B": {"0": 1}}'}, "'B', which is not among"),
        ({"subscribePattern": "A.*", "endingOffsets": '{"BA": {"0": 1}}'}, "'BA', which is not"),
        ({"assign": '{"A": [0]}', "startingOffsets": '{"A": {"1": 1}}'}, "queue 1 of 'A'"),
    ],
)
def test_contradictions_are_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**options)


def test_the_same_twice_is_no_contradiction() -> None:
    assert read(subscribe="A", topic="A").topics == ("A",)


def test_a_level_of_brokers_is_skipped() -> None:
    offsets = parse_offsets("startingOffsets", '{"A": {"broker-a": {"0": 5}}, "B": {"1": 6}}')
    assert offsets == {"A": {0: 5}, "B": {1: 6}}


def test_assigned_queues_are_filters_of_their_topics() -> None:
    filters = read(assign='{"A": [0, 2]}').filters()
    assert filters["topics"] == ["A"]
    assert filters["queue_ids"] == {"A": [0, 2]}


def test_a_pattern_matches_whole_topics() -> None:
    options = read(subscribePattern="Order.")
    assert options.takes_topic("OrderA")
    assert not options.takes_topic("OrderAB")
    assert not options.takes_topic("anOrderA")


def test_the_writer_has_options_of_its_own() -> None:
    given = {"PATH": "/data/store", "topic": "A", "txnappid": "job", "queryname": "q"}
    assert parse_write(given) == {"path": "/data/store", "topic": "A", "txnAppId": "job"}
    with pytest.raises(ConfigError, match="did you mean 'txnVersion'"):
        parse_write({"path": "/data/store", "txnversions": "1"})
    with pytest.raises(ConfigError, match="path"):
        parse_write({"topic": "A"})


def test_names_are_found_in_any_case() -> None:
    assert canonical({"STAGINGDIR": "s"}, ("stagingDir",), "writing") == {"stagingDir": "s"}


def test_a_table_of_the_catalog_is_refused() -> None:
    added = {"owner": "me", "location": "file:/x", "option.path": "/s"}
    with pytest.raises(ConfigError, match="CREATE TEMPORARY VIEW"):
        parse_read({"path": "/s", **added})


def test_a_list_of_options_names_each_once() -> None:
    with pytest.raises(ConfigError) as failure:
        read(zzz="1")
    names = str(failure.value).partition("must be one of ")[2].split(", ")
    assert len(names) == len(set(names)) > 20


def test_a_filter_is_checked_where_it_is_given() -> None:
    made = read(filter="n > 50 AND color IN ('red')")
    found = made.filters()["filter"]
    assert found.matches({"n": "51", "color": "red"})
    with pytest.raises(ConfigError) as caught:
        read(filter="n > 50 AND AND")
    shown, caret = str(caught.value).splitlines()[-2:]
    assert caret.index("^") == shown.rindex("AND")
    with pytest.raises(ConfigError, match="filter is empty"):
        read(filter=" ")
    with pytest.warns(FilterWarning):
        made = read(filter="n = 5 garbage")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.filters()  # in tasks, without a warning for each
