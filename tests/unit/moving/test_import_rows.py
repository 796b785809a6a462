"""Rows that other programs made: what they leave out, repeat, misname or write in other types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rocketstore
from rocketstore.errors import MappedFileError, RepairRefusedError
from rocketstore.moving.exports.importing import import_

ROW = {"topic": "T", "body": "a"}


def imported(tmp_path: Path, *rows: Any) -> tuple[Any, list[Any]]:
    """Import lines; return the report and the stored messages."""
    lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
    (tmp_path / "in.ndjson").write_text("".join(f"{line}\n" for line in lines))
    report = import_(tmp_path / "in.ndjson", tmp_path / "made")
    with rocketstore.open(tmp_path / "made") as store:
        return report, list(store.scan())


def test_names_beside_the_properties_are_kept(tmp_path: Path) -> None:
    names = {"tags": "t", "keys": "k1 k2", "uniqKey": "U1"}
    same = {"TAGS": "t", "KEYS": "k1 k2", "UNIQ_KEY": "U1"}
    report, stored = imported(
        tmp_path, ROW | names | {"properties": {"x": "1"}},
        ROW | names | {"properties": {"x": "1", **same}},
        ROW | names, ROW | {"properties": {"x": "1", **same}},
    )  # fmt: skip
    assert report.ok
    assert [one.properties for one in stored] == [
        {"x": "1"} | same, {"x": "1"} | same, same, {"x": "1"} | same,
    ]  # fmt: skip


def test_names_that_contradict_the_properties_are_refused(tmp_path: Path) -> None:
    report, stored = imported(tmp_path, ROW, ROW | {"tags": "t", "properties": {"TAGS": "u"}})
    assert [one["reason"] for one in report.findings] == ["tags is 't', but property TAGS is 'u'"]
    assert len(stored) == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"topic": "T", "body": None}, "body is null"),
        ({"topic": None, "body": "x"}, "topic is null"),
        ({"topic": "T"}, "body is null"),
        (ROW | {"tag": "x"}, "'tag' is no column of a message; did you mean tags?"),
        (ROW | {"zone": "x"}, "'zone' is no column of a message; a value of the user's"),
        (ROW | {"properties": "{"}, "properties are no JSON"),
        (ROW | {"properties": [1]}, "properties must be an object, not list"),
        (ROW | {"properties": {"n": 1}}, "must be str"),
        ({"topic": 5, "body": "x"}, "must be str"),
    ],
)
def test_a_row_that_is_no_message_is_listed(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    report, stored = imported(tmp_path, ROW, row, ROW)
    assert [(one["row"], reason in one["reason"]) for one in report.findings] == [(2, True)]
    assert len(stored) == 2


def test_lines_without_text_are_ignored(tmp_path: Path) -> None:
    report, stored = imported(tmp_path, ROW, "", "  ", ROW)
    assert (report.ok, len(stored)) == (True, 2)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.ndjson", b'{"topic":"T","body":"a","tag":"x"}\n', "'tag' is no column"),
        ("a.ndjson", b'{"topic":"T","text":"a"}\n', "no column body"),
        ("a.csv", b"T,a\nT,b\n", "the first line must name the columns"),
        ("a.csv", b"topic,body,region\nT,a,eu\n", "'region' is no column"),
        ("a.ndjson", b'{"topic":"T","body":"a","bodyBase64":"YQ=="}\n', "both body and bodyBase64"),
    ],
)
def test_a_source_that_is_no_messages_is_refused(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((RepairRefusedError, MappedFileError), match=reason):
        import_(tmp_path / name, tmp_path / "made")


def test_texts_of_a_table_are_taken(tmp_path: Path) -> None:
    table = pa.table(
        {
            "topic": ["T"],
            "body": ["text"],
            "properties": ['{"x": "1"}'],
            "bornTimestamp": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert import_(tmp_path / "a.parquet", tmp_path / "made").ok
    with rocketstore.open(tmp_path / "made") as store:
        (stored,) = store.scan()
    assert (stored.body, stored.properties) == (b"text", {"x": "1"})
    assert stored.born_timestamp == 1_700_000_000_123
