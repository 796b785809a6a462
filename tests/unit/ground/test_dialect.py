"""Dialects: the version parser, the thresholds, and what real stores of each line show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import golden_stores
from rocketstore import formats
from rocketstore.dialect import DEFAULT_VERSION, BatchProperties, Dialect, LightOffsets
from rocketstore.errors import ConfigError

FUSED, JOINED, DROPPED = BatchProperties.FUSED, BatchProperties.JOINED, BatchProperties.DROPPED
#: The last version before each change and the first after it, with what changed.
CHANGES: list[tuple[str, str, dict[str, tuple[Any, Any]]]] = [
    ("4.9.0", "4.9.1", {"trailing_separator": (True, False)}),
    (
        "4.9.2",
        "4.9.3",
        {
            "batch_properties": (FUSED, JOINED),
            "light_offsets": (LightOffsets.NONE, LightOffsets.ANY_NAME),
        },
    ),
    ("4.9.3", "4.9.4", {"record_extra": (False, True)}),
    (
        "4.9.8",
        "5.0.0",
        {
            "limits_in_characters": (True, False),
            "sync_master_wants_slave": (True, False),
            "clamps_disk_ratios": (False, True),
            "pools_with_sync_flush": (False, True),
            "abort_holds_pid": (False, True),
            "checkpoint_nbytes": (24, 32),
            "empty_queue_keeps_min": (True, False),
            "light_offsets": (LightOffsets.ANY_NAME, LightOffsets.QUEUED),
            "light_offsets_count_on": (False, True),
            "light_limit": (True, False),
            "loads_folders": (True, False),
            "has_timer": (False, True),
            "stores_wait_last": (True, False),
            "transaction_id": (False, True),
        },
    ),
    (
        "5.0.0",
        "5.1.0",
        {
            "record_version_2": (False, True),
            "long_retry_topics": (False, True),
            "property_buckets": (16, 128),
            "op_lists": (False, True),
        },
    ),
    (
        "5.1.0",
        "5.1.1",
        {
            "checkpoint_nbytes": (32, 40),
            "offset_by_mtime": (True, False),
            "light_offsets_count_on": (True, False),
            "transaction_check_interval_ms": (60_000, 30_000),
        },
    ),
    ("5.1.2", "5.1.3", {"filter_text_search": (False, True)}),
    (
        "5.1.4",
        "5.2.0",
        {
            "trailing_separator": (False, True),
            "property_crc": (False, True),
            "clamp_offset_by_time": (False, True),
            "light_offsets": (LightOffsets.QUEUED, LightOffsets.ALL),
        },
    ),
    (
        "5.3.1",
        "5.3.2",
        {"light_offsets_by_lmq": (False, True), "timer_deletes_by_topic": (False, True)},
    ),
    ("5.3.3", "5.3.4", {"immunity_includes_end": (False, True)}),
    (
        "5.3.4",
        "5.4.0",
        {
            "batch_properties": (JOINED, DROPPED),
            "index_tags": (False, True),
            "max_dispatch_lag_files": (None, 9),
            "fastjson_2": (False, True),
            "timer_deletes_by_topic": (True, False),
            "commit_keeps_real_topic": (True, False),
        },
    ),
    (
        "5.4.0",
        "5.5.0",
        {
            "checkpoint_nbytes": (40, 48),
            "light_limit": (False, True),
            "pull_asks_for_count": (True, False),
        },
    ),
]
HABITS = sorted(
    name for name, value in vars(Dialect).items() if isinstance(value, property) and name != "name"
)


def habits(version: str) -> dict[str, Any]:
    """All habits of a version."""
    dialect = Dialect.for_version(version)
    return {name: getattr(dialect, name) for name in HABITS}


@pytest.mark.parametrize(("before", "after", "changes"), CHANGES, ids=lambda value: str(value)[:5])
def test_each_threshold_changes_just_this(
    before: str, after: str, changes: dict[str, tuple[Any, Any]]
) -> None:
    old, new = habits(before), habits(after)
    found = {name: (old[name], new[name]) for name in HABITS if old[name] != new[name]}
    assert found == changes


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("4.9.1", "4.9.2"),
        ("4.9.4", "4.9.8"),
        ("5.1.1", "5.1.2"),
        ("5.1.3", "5.1.4"),
        ("5.2.0", "5.3.1"),
        ("5.3.2", "5.3.3"),
        ("5.5.0", "5.5.7"),
    ],
)
def test_nothing_changes_between_thresholds(first: str, last: str) -> None:
    assert habits(first) == habits(last)


@pytest.mark.parametrize(
    ("version", "topics"),
    [
        ("4.9.2", ""),
        ("4.9.3", "T retry timer system schedule dlq"),
        ("5.1.0", "T retry timer system schedule dlq"),
        ("5.1.1", "T timer system schedule dlq"),
        ("5.1.2", "T system dlq"),
        ("5.1.4", "T system dlq"),
        ("5.2.0", "T timer system schedule dlq"),
        ("5.3.0", "T timer system schedule dlq"),
        ("5.3.1", "T dlq"),
        ("5.4.0", "T dlq"),
        ("5.5.0", "T"),
    ],
)
def test_which_topics_get_offsets_in_light_queues(version: str, topics: str) -> None:
    dialect = Dialect.for_version(version)
    named = {
        "T": "T",
        "retry": "%RETRY%g",
        "timer": formats.TOPIC_TIMER,
        "system": "rmq_sys_REVIVE_LOG_c",
        "schedule": formats.TOPIC_SCHEDULE,
        "dlq": "%DLQ%g",
    }
    given = [word for word, topic in named.items() if dialect.gives_light_offsets(topic)]
    assert given == topics.split()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("5.3.3", (5, 3, 3)),
        ("5.5", (5, 5, 0)),
        (" v4.9.8 ", (4, 9, 8)),
        ("V5.1.0", (5, 1, 0)),
        ("5.5.9", (5, 5, 9)),
    ],
)
def test_versions_are_read(text: str, version: tuple[int, int, int]) -> None:
    dialect = Dialect.for_version(text)
    assert dialect.version == version
    assert dialect.name == ".".join(map(str, version))


@pytest.mark.parametrize("text", ["", "5", "five", "5.3.3.1", "5.3.x", "-5.3", "5,3", "5.3.3-rc1"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a version such as"):
        Dialect.for_version(text)


@pytest.mark.parametrize("value", [None, 5.3, (5, 3, 3)])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="is not a version such as"):
        Dialect.for_version(value)


@pytest.mark.parametrize("text", ["4.8.0", "3.5.8", "0.0.0"])
def test_older_versions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"older than 4\.9\.0"):
        Dialect.for_version(text)


@pytest.mark.parametrize("text", ["5.6.0", "6.0.0", "5.10"])
def test_newer_versions_need_consent(text: str) -> None:
    with pytest.raises(ConfigError, match="allow_newer"):
        Dialect.for_version(text)
    newer = Dialect.for_version(text, allow_newer=True)
    newest = Dialect.for_version("5.5.0")
    assert {n: getattr(newer, n) for n in HABITS} == {n: getattr(newest, n) for n in HABITS}


@given(st.text(max_size=12))
def test_any_text_is_a_version_or_a_config_error(text: str) -> None:
    try:
        dialect = Dialect.for_version(text)
    except ConfigError:
        return
    assert Dialect.for_version(dialect.name) == dialect


def test_the_default_is_known() -> None:
    assert Dialect.for_version(DEFAULT_VERSION).name == DEFAULT_VERSION


def test_a_dialect_cannot_be_changed() -> None:
    dialect = Dialect.for_version("5.3.3")
    with pytest.raises(AttributeError):
        dialect.version = (5, 5, 0)  # type: ignore[misc]


def stores() -> list[str]:
    """Golden stores written by a store alone or by a whole broker."""
    return golden_stores.names("plain-", "crash-", "lag-", "broker-")


@pytest.mark.parametrize("name", stores())
def test_real_checkpoints_end_where_the_dialect_says(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    dialect = Dialect.for_version(golden_stores.about(name)["rocketmq"])
    data = (root / formats.CHECKPOINT_FILE).read_bytes()
    assert len(data) == formats.CHECKPOINT_FILE_NBYTES
    assert not any(data[dialect.checkpoint_nbytes :])
    abort = root / formats.ABORT_FILE
    if abort.exists():
        assert abort.read_bytes().isdigit() is dialect.abort_holds_pid


@pytest.mark.parametrize("name", golden_stores.names("plain-"))
def test_real_properties_end_as_the_dialect_says(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    dialect = Dialect.for_version(golden_stores.about(name)["rocketmq"])
    data = (root / formats.COMMIT_LOG_DIR / formats.offset_to_file_name(0)).read_bytes()
    position, ends = 0, set()
    while True:
        size, magic = formats.BLANK.struct.unpack_from(data, position)
        if magic not in (formats.MAGIC_V1, formats.MAGIC_V2):
            break
        record = data[position : position + size]
        if formats.NAME_VALUE_SEPARATOR in record[-8:]:
            # The last property is short, so the record surely has properties.
            ends.add(record[-1] == formats.PROPERTY_SEPARATOR)
        position += size
    assert ends == {dialect.trailing_separator}
