"""``retention``: which segments go when, and what is lost with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, MessageStoreConfig
from rocketstore.looking.expiry import (
    LostUnread,
    RetentionReport,
    next_round,
    retention,
    what_if_config,
)
from support.looked_stores import HOUR_MS, SEGMENT, START, make_store, plain_records

UTC = MessageStoreConfig(timezone="UTC")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_store(tmp_path_factory.mktemp("looked") / "store", 400)
    (root / "config").mkdir()
    table = {"Orders@slow": {"0": 1}, "Orders@quick": {"0": 100}, "Pays@slow": {"1": 0}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return root


def asked(root: Path, hours: int = 72, **options: Any) -> RetentionReport:
    with rocketstore.open(root) as store:
        return retention(store, config=UTC.replace(file_reserved_time=hours), **options)


def test_files_are_those_of_a_plain_reader(root: Path) -> None:
    now = START + 50 * HOUR_MS
    report = asked(root, 24, at=now)
    records = [one for one in plain_records(root) if one.topic is not None]
    count = max(one.offset for one in records) // SEGMENT
    assert [file.start for file in report.files] == [SEGMENT * n for n in range(count)]
    for file in report.files:
        inside = [one for one in records if file.start <= one.offset < file.start + SEGMENT]
        assert file.oldest_timestamp == min(one.stored for one in inside)
        assert file.newest_timestamp == max(one.stored for one in inside)
        assert file.expires == file.newest_timestamp + 24 * HOUR_MS
        topics: dict[str, int] = {}
        for one in inside:
            topics[str(one.topic)] = topics.get(str(one.topic), 0) + 1
        assert file.messages == topics
        lost = {(one.group, one.topic, one.queue_id): one.messages for one in file.lost}
        pays = sum(1 for one in inside if (one.topic, one.queue_id) == ("Pays", 1))
        assert lost.get(("slow", "Pays", 1), 0) == pays
        assert ("quick", "Orders", 0) not in lost
    orders = [one for one in records if (one.topic, one.queue_id) == ("Orders", 0)]
    gone = [one for one in orders if one.offset < SEGMENT * count]
    assert (
        sum(one.messages for file in report.files for one in file.lost if one.topic == "Orders")
        == len(gone) - 1
    )
    times = [file.time for file in report.files]
    assert times == sorted(times)
    assert report.kept


def test_upto_and_options(root: Path) -> None:
    now = START + 30 * HOUR_MS
    early = asked(root, 24, at=now, upto=now)
    later = asked(root, 24, at=now, upto=now + 400 * HOUR_MS)
    assert len(early.files) < len(later.files) == len(asked(root, 24, at=now).files)
    assert asked(root, 24, at=now).options["fileReservedTime"] == 24
    assert isinstance(asked(root, 24, at=now).lost_unread, int)
    first = asked(root, 24, at=now).files[0]
    assert first.lost[0] == LostUnread("slow", "Orders", 0, first.lost[0].messages)


def test_the_next_round() -> None:
    noon = 1_700_049_600_000  # 2023-11-15 12:00 UTC
    assert next_round(noon, UTC, soon=True) == noon
    assert next_round(noon, UTC, soon=False) == noon + 16 * HOUR_MS
    assert next_round(noon, UTC.replace(delete_when="12;13"), soon=False) == noon
    assert next_round(noon + 1, UTC.replace(delete_when="13"), soon=False) == noon + HOUR_MS
    assert next_round(10**17, UTC, soon=False) == 10**17


def test_what_if() -> None:
    config = what_if_config(UTC, {"fileReservedTime": "24", "deleteWhen": "02"})
    assert (config.file_reserved_time, config.delete_when) == (24, "02")
    assert config.timezone == "UTC"
    assert what_if_config(UTC, {}) is UTC
    with pytest.raises(ValueError, match="no option here"):
        what_if_config(UTC, {"flushDiskType": "SYNC_FLUSH"})
    for value in ("x", "-1", ""):
        with pytest.raises(ConfigError):
            what_if_config(UTC, {"fileReservedTime": value})


def test_few_pages_of_a_queue_stay_in_memory(tmp_path: Path) -> None:
    """Of each comparison pages stayed: with many queues hundreds of MiB."""
    with rocketstore.open(tmp_path / "s", "a", mapped_file_size_commit_log=65536) as store:
        for number in range(30_000):
            store.put("T", b"%d" % number)
    with rocketstore.open(tmp_path / "s", derive="none") as store:
        assert len(retention(store, config=UTC.replace(file_reserved_time=72)).files) > 30
        blocks = Path("/proc/self/smaps").read_text().split("VmFlags:")
        found = [one for one in blocks if f"{tmp_path}/s/consumequeue" in one]
        resident = [int(one.partition("\nRss:")[2].split()[0]) for one in found]
    assert found
    assert sum(resident) <= 128  # KiB, of 586
