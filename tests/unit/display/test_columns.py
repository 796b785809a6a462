"""Names and types of the columns of a table of messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rocketstore.arrow.columns import COLUMNS, PRESETS, arrow_schema, resolve


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset: str) -> None:
    names = resolve(preset)
    assert names == list(PRESETS[preset]) == resolve(names) == resolve(preset.upper())
    assert set(names) <= set(COLUMNS)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("queueId, body", ["queueId", "body"]),
        ("topic", ["topic"]),
        (("body", "raw"), ["body", "raw"]),
    ],
)
def test_names(columns: str | tuple[str, ...], expected: list[str]) -> None:
    assert resolve(columns) == expected
    assert resolve(columns, include_properties=True) == [*expected, "properties"]


def test_properties_are_added_once_and_as_kafka_calls_them() -> None:
    assert resolve("full", include_properties=True) == resolve("full")
    assert resolve("core", include_properties=True)[-1] == "properties"
    assert resolve("kafka", include_properties=True)[-1] == "headers"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("queueid", "no column 'queueid'; did you mean 'queueId'"),
        (["storeTimestmp"], "did you mean 'storeTimestamp'"),
        ("cor", "did you mean 'core'"),
        # It asked whether the very same word had been meant.
        ("core,raw", "'core' is a preset, not a column; use it alone"),
        (["topic", "Full"], "'Full' is a preset, not a column"),
        ("xyzzy", "there are topic, queueId"),
        ([], "no column is given"),
        ("", "no column ''"),
        (["body", "body"], "'body' is given twice"),
    ],
)
def test_wrong_names(columns: str | list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolve(columns)


def test_a_name_is_text() -> None:
    with pytest.raises(TypeError, match="not int"):
        resolve(["body", 5])  # type: ignore[list-item]


def test_types() -> None:
    schema = arrow_schema(resolve("full"))
    assert all(field.nullable for field in schema)
    assert schema.field("queueId").type == pa.int32()
    assert schema.field("storeTimestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
    headers = arrow_schema(["headers"]).field("headers").type
    assert headers.value_type.field("value").type == pa.binary()
