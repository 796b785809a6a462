"""Stores whose report has something in every section; and one whose names attack a browser."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path

import rocketstore
from support.looked_stores import HOUR_MS, Clock, open_looked

SPAN_HOURS = 60
GROUPS = (
    ("billing", "Payments", 0.4),
    ("fulfilment", "Orders", 0.96),
    ("warehouse", "Shipments", 0.8),
    ("audit", "Orders", 0.1),
    ("mailer", "Notices", 1.0),
)
BROKER_CONF = """\
brokerName=broker-a
flushDiskTyp=SYNC_FLUSH
fileReservedTime=72
transientStorePoolEnable=true
"""
HOSTILE = "<script>alert(1)</script>\"' onclick=x \x1b[31m\u202egnp.exe\u2066\ufeff\x7f\x00"
HOSTILE_TOPIC = "<b onload=x>&'\u202e\x1b\x07"
HOSTILE_GROUP = "<svg onload=alert(1)>\u202e"


def make_shown(folder: Path) -> tuple[Path, Path]:
    """Make a damaged store of two and a half days, and a broker's file; return both paths."""
    root, chance = folder / "store", random.Random(5)
    first = time.time_ns() // 1_000_000 - SPAN_HOURS * HOUR_MS
    clock = Clock(first)
    with open_looked(root, clock=clock, mapped_file_size_commit_log=64 * 1024,
                     max_hash_slot_num=500, max_index_num=2000) as store:  # fmt: skip
        for number in range(4000):
            hour = number * SPAN_HOURS / 4000
            clock.now = first + int(hour * HOUR_MS)
            if chance.random() > 0.55 + 0.45 * math.sin(hour / 24 * math.tau):
                continue
            topics = ("Orders", "Payments", "Shipments", "Notices", "%RETRY%billing")
            topic = chance.choices(topics, (8, 5, 3, 2, 1))[0]
            store.put(topic, b"x" * chance.randrange(40, 600), number % 4, "tag", f"key-{number}")
            if number % 200 < 3:
                store.put("Orders", b"later", delay_level=chance.choice((3, 5, 18)))
            if number % 300 < 3:
                store.begin("Payments", b"half", group="billing", keys=f"pay-{number}")
    _consume(root)
    segments = sorted((root / "commitlog").iterdir())
    with open(segments[3], "r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))
    segments[6].unlink()
    conf = folder / "broker.conf"
    conf.write_text(BROKER_CONF, encoding="utf-8")
    return root, conf


def _consume(root: Path) -> None:
    """Write offsets of groups that have read a part of their topics."""
    with rocketstore.open(root) as store:
        table = {
            f"{topic}@{group}": {
                str(queue): int(store.max_offset_in_queue(topic, queue) * share)
                for queue in store.queues(topic)
            }
            for group, topic, share in GROUPS
        }
    (root / "config").mkdir(exist_ok=True)
    content = json.dumps({"offsetTable": table})
    (root / "config/consumerOffset.json").write_text(content, encoding="utf-8")


def make_hostile(root: Path) -> Path:
    """Make a store whose topic, group, keys and hosts are markup and control characters."""
    harmless = "T" * len(HOSTILE_TOPIC.encode())
    with open_looked(root) as store:
        for number in range(5):
            store.put(harmless, HOSTILE.encode(), 0, "t", f"k{number}")
            store.begin("Orders", b"body", group="G<i>", keys="KEY<b>\u202e")
    for segment in (root / "commitlog").iterdir():
        content = segment.read_bytes()
        segment.write_bytes(content.replace(harmless.encode(), HOSTILE_TOPIC.encode()))
    (root / "config").mkdir(exist_ok=True)
    offsets = json.dumps({"offsetTable": {f"{harmless}@{HOSTILE_GROUP}": {"0": 1}}})
    (root / "config/consumerOffset.json").write_text(offsets, encoding="utf-8")
    return root
