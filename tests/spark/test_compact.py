"""Compaction and loading: from one store, or from rows, into a new store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore.sources import list_log
from rocketstore.spark import compact
from rocketstore.spark.jobs.compact import gather
from support.command_line import lines, run

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prices of 20 articles, several of each, the last of some empty; and another topic."""
    root = tmp_path_factory.mktemp("prices") / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=16 << 10) as opened:
        for number in range(400):
            article = number * 7 % 20
            body = b"" if number > 380 and article % 5 == 0 else b"price %d" % number
            opened.put("Prices", body, article % 4, "tag", f"article {article}")
            if number % 100 == 0:
                opened.put("Prices", b"note %d" % number, 0)
                opened.put("Other", b"other", 0, keys=f"article {article}")
    return root


def latest(store: Path, keep_unkeyed: bool) -> list[tuple[Any, ...]]:
    """What is to be kept, by a plain loop over the log."""
    last: dict[str, rocketstore.StoredMessage] = {}
    kept = []
    with rocketstore.open(store) as opened:
        for message in opened.scan(topics=["Prices"]):
            if message.keys is not None:
                last[message.keys] = message.detach()
            elif keep_unkeyed:
                kept.append(message.detach())
    kept += [message for message in last.values() if message.body]
    kept.sort(key=lambda message: message.physical_offset)
    return [facts(message) for message in kept]


def facts(message: rocketstore.StoredMessage) -> tuple[Any, ...]:
    return message.topic, message.queue_id, message.tags, message.keys, message.body


def test_the_latest_of_each_key_is_kept(spark: Any, store: Path, tmp_path: Path) -> None:
    (row,) = compact(spark, store, tmp_path / "new", topics="Prices", split_bytes=3_000).collect()
    wanted = latest(store, True)
    with rocketstore.open(tmp_path / "new") as opened:
        assert [facts(message) for message in opened.scan()] == wanted
        assert opened.verify().ok
    assert row.asDict() == {
        "topic": "Prices",
        "messages": 404,
        "keys": 20,
        "tombstones": 20 + 4 - len(wanted),
        "unkeyed": 4,
        "kept": len(wanted),
    }
    assert 0 < row["tombstones"] < 20


def test_the_command(spark: Any, store: Path, tmp_path: Path) -> None:
    options = ("--topic", "Prices", "--drop-unkeyed")
    (row,) = lines(run("spark", "compact", store, tmp_path / "new", *options))
    wanted = latest(store, False)
    assert (row["kept"], row["unkeyed"]) == (len(wanted), 0)
    with rocketstore.open(tmp_path / "new") as opened:
        assert [facts(message) for message in opened.scan()] == wanted
    # What is there is never written over.
    assert "new" in run("spark", "compact", store, tmp_path / "new", *options, code=3).stderr


def test_loading_rows(spark: Any, tmp_path: Path) -> None:
    rows = [(f"k{number}", f"body {number}") for number in range(50)]
    spark.createDataFrame(rows, "keys string, body string").write.json(str(tmp_path / "rows"))
    options = ("--from", "json", "--topic", "Loaded", "--queues", 3)
    (report,) = lines(run("spark", "load", tmp_path / "rows", tmp_path / "new", *options))
    assert report["rows"] == 50
    with rocketstore.open(tmp_path / "new") as opened:
        found = {(message.keys, message.body.decode()) for message in opened.scan()}
        assert opened.queues("Loaded") == [0, 1, 2]
    assert found == set(rows)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [({"key": "tags", "topics": "T"}, "must be one of keys"), ({"topics": []}, "topics is empty")],
)
def test_wrong_arguments(
    spark: Any, store: Path, tmp_path: Path, arguments: dict[str, Any], reported: str
) -> None:
    with pytest.raises(ValueError, match=reported):
        compact(spark, store, tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


def test_survivors_after_damage_that_ended_a_split_are_kept(store: Path, tmp_path: Path) -> None:
    """Without a session: the two passes divide the log into splits in different ways."""
    root = tmp_path / "store"
    shutil.copytree(store, root)
    with rocketstore.open(root) as opened:
        found = [message.detach() for message in opened.scan()][:40]
    segment = min((root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    content[found[20].physical_offset + 4] ^= 0x55  # the magic
    segment.write_bytes(content)
    places = [message.physical_offset for message in found if message is not found[20]]
    reading = {"topics": None, "on_corruption": "stop", "check_crc": True, "storage_options": None}
    batches = list(gather(list_log(root), np.array(places), reading))
    assert [n for batch in batches for n in batch.column("physicalOffset").to_pylist()] == places
