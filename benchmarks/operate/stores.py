"""Stores for the commands, filled with messages as Java producers send them.

Run as a program, ``python -m operate.stores KIND FOLDER GIB``, so that the process that measures
stays small: a child's peak of memory begins with its parent's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from race.messages import BODIES, MessageSet

import rocketstore
from rocketstore import Message, formats
from rocketstore.config_managers import ConsumerOffsetManager, TopicConfig, TopicConfigManager

GROUP = "race-group-00"
KINDS = ("full", "sparse")
#: MiB of messages in each segment of a sparse store; the rest of the segment is its end marker.
SPARSE_MIB = 64
_GIB, _MIB = 1 << 30, 1 << 20
_STEP = 2000
_BORN_HOST = "10.1.2.3:40321"


def messages(nbytes: int) -> Iterator[Message]:
    """Yield a Java producer's messages with bodies of about 1 KiB, ``nbytes`` of log at least."""
    least, most = BODIES["1k"]
    made = MessageSet.make("producer", "1k", 0, count=min(nbytes // (least + most), 200_000))
    number = 0
    while nbytes > 0:
        for one in made.plain(0, len(made)):
            nbytes -= one.nbytes
            one.properties["KEYS"] = f"order-{number:09d}"
            one.properties["UNIQ_KEY"] = f"C0A801171F2A5FFD2B27{number:012X}"
            number += 1
            yield Message(
                one.topic, one.body, queue_id=one.queue, properties=one.properties,
                born_timestamp=one.born_timestamp + number // 100, born_host=_BORN_HOST,
            )  # fmt: skip
            if nbytes <= 0:
                return


def make_full(path: Path, gib: float) -> None:
    """Make a store whose log is ``gib`` GiB of messages."""
    _fill(path, "x", int(gib * _GIB))
    _write_tables(path)


def make_sparse(path: Path, gib: float) -> None:
    """Make a store of ``gib`` segments of 1 GiB with 64 MiB of messages each; the rest is holes.

    A store that is there is extended.
    """
    folder = path / formats.COMMIT_LOG_DIR
    there = len(list(folder.iterdir())) if folder.is_dir() else 0
    for number in range(there, max(1, round(gib))):
        if number:
            _close_segment(path, number - 1)
        _fill(path, "r+" if number else "x", SPARSE_MIB * _MIB)
    _write_tables(path)


def _fill(path: Path, mode: str, nbytes: int) -> None:
    with rocketstore.open(path, mode) as store:
        many: list[Message] = []
        for one in messages(nbytes):
            many.append(one)
            if len(many) == _STEP:
                assert store.put_many(many).ok
                many = []
        assert store.put_many(many).ok
        assert store.wait_dispatched()


def _close_segment(path: Path, number: int) -> None:
    """Write the end marker after the last record, as a broker does if a record does not fit."""
    with rocketstore.open(path) as store:
        end = store.max_physical_offset
    segment = path / formats.COMMIT_LOG_DIR / formats.offset_to_file_name(number * _GIB)
    with open(segment, "r+b") as file:
        file.seek(end % _GIB)
        file.write(struct.pack(">iI", _GIB - end % _GIB, formats.BLANK_MAGIC & 0xFFFFFFFF))
    following = segment.with_name(formats.offset_to_file_name((number + 1) * _GIB))
    with open(following, "xb") as file:
        file.truncate(_GIB)


def _write_tables(path: Path) -> None:
    """Write the broker's tables: topics, and a group that has consumed nine tenths."""
    topics, consumed = TopicConfigManager(path), ConsumerOffsetManager(path)
    with rocketstore.open(path) as store:
        for topic in store.topics():
            queues = store.queues(topic)
            topics.update_topic_config(
                TopicConfig(
                    topic_name=topic, read_queue_nums=len(queues), write_queue_nums=len(queues)
                )
            )
            for queue_id in queues:
                end = store.max_offset_in_queue(topic, queue_id)
                consumed.commit_offset(GROUP, topic, queue_id, end * 9 // 10)
    topics.persist()
    consumed.persist()


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("gib", type=float)
    chosen = parser.parse_args()
    if chosen.kind == "full":
        shutil.rmtree(chosen.folder, ignore_errors=True)
    os.makedirs(chosen.folder.parent, exist_ok=True)
    (make_full if chosen.kind == "full" else make_sparse)(chosen.folder, chosen.gib)
    return 0


if __name__ == "__main__":
    sys.exit(main())
