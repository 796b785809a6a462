"""Queues and their files that are missing: what the first records of segments show of them.

Reads a thousand records of a few segments, so it takes as long for a store of any size. A queue
that none of these records belongs to is examined at the level ``full`` only.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.diagnosis.image import READ_ERRORS, Entry, Record, StoreImage, first_records
from rocketstore.diagnosis.pointers import Pointers
from rocketstore.diagnosis.sizes import StoreSizes
from rocketstore.diagnosis.verdict import DataEffect, Findings, Place
from rocketstore.directory.parts import rocksdb_queues
from rocketstore.files.durable import odd_folder
from rocketstore.survey.deleted_topics import is_unlisted, known_topics

#: Segments that are looked into: the first, the last, and some between.
_MOST_SEGMENTS = 8
_UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes


class MissingQueues:
    """Reports records at the beginnings of segments whose queue, or its file, is not listed.

    Parameters
    ----------
    image : StoreImage
    sizes : StoreSizes
    findings : Findings
    pointers : Pointers
    is_unclean : bool
        After a crash all queues may lack the newest records; so many do not count.
    """

    def __init__(
        self,
        image: StoreImage,
        sizes: StoreSizes,
        findings: Findings,
        pointers: Pointers,
        *,
        is_unclean: bool,
    ) -> None:
        self._image = image
        self._sizes = sizes
        self._findings = findings
        self._pointers = pointers
        self._is_unclean = is_unclean
        self._known = known_topics(image.root)
        self._odd: set[Path] = set()
        self._batch_topics = {topic for topic, _ in image.batch_queues}

    def run(self) -> None:
        """Add a finding for each queue, and for each file."""
        if not os.path.lexists(self._image.paths.consume_queue):
            return  # reported already
        if rocksdb_queues(self._image.root) is not None:
            return  # the files need not be there
        lacking: dict[tuple[str, int, Path], list[int]] = {}
        for record in self._records():
            for stored, queue_id, offset in record.queues():
                topic = stored.decode("utf-8", "surrogateescape")
                path = self._missing(topic, queue_id, offset)
                if path is not None and self._is_dispatched(record):
                    lacking.setdefault((topic, queue_id, path), []).append(offset)
        for (topic, queue_id, path), offsets in sorted(lacking.items()):
            self._add(topic, queue_id, path, offsets)

    def _is_dispatched(self, record: Record) -> bool:
        return not self._is_unclean or record.place < self._pointers.highest

    def _records(self) -> Iterator[Record]:
        files = [one for one in self._image.log if one.kind == "file" and one.start is not None]
        files = [one for one in files if one.nbytes]
        for entry in _spread(files):
            try:
                found = first_records(entry, self._image.log_root)
            except READ_ERRORS:
                continue  # reported by StoreAccess
            yield from (one for one in found if one.place == one.offset)

    def _missing(self, topic: str, queue_id: int, offset: int) -> Path | None:
        """Return the folder, or the file, that has no place for a queue's offset."""
        is_light = topic.startswith(formats.TOPIC_LMQ_PREFIX)
        if is_light or topic in self._batch_topics or is_unlisted(topic, self._known):
            return None
        folder = self._image.paths.consume_queue / topic / str(queue_id)
        if self._is_odd(folder.parent) or self._is_odd(folder):
            return None
        listed = self._image.queues.get((topic, queue_id))
        if listed is None:
            return None if os.path.lexists(folder) else folder  # else StoreAccess reports it
        starts = [one.start for one in listed if one.start is not None]
        start = offset * _UNIT_NBYTES // self._sizes.queue * self._sizes.queue
        if start in starts or (starts and min(starts) < start < max(starts)):
            return None  # a gap is reported already
        return folder / formats.offset_to_file_name(start)

    def _is_odd(self, folder: Path) -> bool:
        """Return whether something else is in the place of a queue's folder; report it once."""
        what = odd_folder(folder)
        if what and folder not in self._odd:
            self._odd.add(folder)
            self._findings.add("store.odd-file", what, [Place(self._image.relative(folder), 0)])
        return bool(what)

    def _add(self, topic: str, queue_id: int, path: Path, offsets: list[int]) -> None:
        first, stop = min(offsets), max(offsets) + 1
        topics = [
            {"topic": topic, "queueId": queue_id, "queueOffsets": [[first, stop]],
             "messages": len(offsets)}
        ]  # fmt: skip
        data = DataEffect("invisible", len(offsets), topics=topics, estimated=True)
        place = Place(
            self._image.relative(path), 0, topic=topic, queue_id=queue_id, queue_offset=first
        )
        name, code = f"{topic} queue {queue_id}", "queue.file.missing"
        what = f"{name}: {path.name} is missing, but the log has queue offset {first}"
        if formats.file_name_to_offset(path.name) is None:
            code = "queue.missing"
            what = f"the folder of {name} is missing, but the log has queue offset {first}"
        self._findings.add(code, what, [place], data=data)


def _spread(files: list[Entry]) -> list[Entry]:
    """Return at most eight of the files, the first and the last among them."""
    last = len(files) - 1
    if last < _MOST_SEGMENTS:
        return files
    numbers = {last * number // (_MOST_SEGMENTS - 1) for number in range(_MOST_SEGMENTS)}
    return list(itertools.compress(files, (number in numbers for number in range(last + 1))))
