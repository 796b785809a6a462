"""``prove``: everything that a store says about one record, as files for others to check."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore import formats, kernels
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.errors import CorruptionError, MappedFileError
from rocketstore.files.durable import write_file
from rocketstore.log.commit_log import describe
from rocketstore.looking.log_source import open_log
from rocketstore.message import StoredMessage
from rocketstore.sources.files import open_input, read_at
from rocketstore.sources.segments import LogFiles, Segment
from rocketstore.sources.splits import plan_splits
from rocketstore.sources.walk import walk
from rocketstore.status import RecordFlags, RecordStatus
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store
from rocketstore.version import __version__

SCHEMA = "rocketstore.evidence/1"
_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
#: Bytes that are kept of a place without a good record.
_DAMAGED_NBYTES = 64 << 10
_HASH_STEP_NBYTES = 4 << 20
_HEAD = formats.RECORD_HEAD


@dataclass(slots=True)
class Evidence:
    """What was found, and the files that hold it.

    Attributes
    ----------
    path : str
        Folder of the files.
    offset : int
    document : dict
        The content of ``evidence.json``.
    files : list of str
        Names, ``evidence.json`` last.
    ok : bool
        The record is whole, its CRCs are right, and, in a store, a unit and index entries name it.
    findings : list of str
        What is not.
    """

    path: str
    offset: int
    document: dict[str, Any]
    files: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def prove(
    path: str | os.PathLike[str],
    offset: int,
    out: str | os.PathLike[str],
    *,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Write a record, its neighbours and everything that refers to it into a new folder.

    Parameters
    ----------
    path : str or path-like
        A store, its ``commitlog`` folder, or one segment. Only read.
    offset : int
        Physical offset of the record. Without a good record there, the bytes of the place are kept
        instead.
    out : str or path-like
        A folder that does not exist or is empty, outside the store.
    config : MessageStoreConfig, optional
    progress : callable, optional

    Returns
    -------
    Evidence

    Raises
    ------
    ValueError
        The log does not have the offset.
    FileExistsError
        ``out`` has content.
    FileNotFoundError, MappedFileError, UnsafePathError, PermissionError
        There is no readable log.
    """
    log = open_log(path, config)
    segment = _segment_of(log, offset)
    folder = _new_folder(Path(out), Path(path))
    made = _Maker(log, segment, offset, folder)
    made.describe_record()
    made.describe_neighbours(progress)
    place = Path(path)
    if place.is_dir() and is_store(store_parts(place)):
        with open_store(place, "r", config=config, progress=progress) as store:
            made.describe_references(store)
    made.describe_segment(progress)
    return made.finish(path)


def _segment_of(log: LogFiles, offset: int) -> Segment:
    for segment in log.segments:
        if segment.base_offset <= offset < segment.base_offset + segment.file_size:
            return segment
    raise ValueError(
        f"the log has offsets {log.min_offset} to {log.end_offset}, and no readable file with "
        f"{offset}"
    )


def _new_folder(out: Path, source: Path) -> Path:
    """Create the folder, or take an empty one; refuse one inside the store."""
    root = Path(os.path.realpath(source))
    if root.is_file():
        root = root.parent
    if root.name == formats.COMMIT_LOG_DIR:
        root = root.parent
    place = Path(os.path.realpath(out))
    if place == root or root in place.parents:
        raise MappedFileError(f"{out} is inside the store {root}, which is only read")
    out.mkdir(parents=True, exist_ok=True)
    names = sorted(os.listdir(out))
    if names:
        raise FileExistsError(17, f"the folder is not empty: it has {names[0]}", str(out))
    return out


class _LastBefore:
    """A pass that keeps where the last record before an offset begins."""

    def __init__(self) -> None:
        self._select = kernels.passes_select.SelectPass(topics=[])
        self.offset: int | None = None

    def consume(
        self, window: Any, position: int, stop: int, base_offset: int, *limits: int
    ) -> tuple[int, int]:
        """See ``rocketstore.sources.walk.Pass``."""
        status, reached = self._select.consume(window, position, stop, base_offset, *limits)
        if self._select.last >= 0:
            self.offset = base_offset + self._select.last
        return status, reached


class _Maker:
    """Collects the evidence."""

    def __init__(self, log: LogFiles, segment: Segment, offset: int, folder: Path) -> None:
        self._log = log
        self._segment = segment
        self._offset = offset
        self._folder = folder
        self._position = offset - segment.base_offset
        self._message: StoredMessage | None = None
        self._end = offset
        self.document: dict[str, Any] = {"schema": SCHEMA, "offset": offset}
        self._files: dict[str, str] = {}
        self._findings: list[str] = []

    def _write(self, name: str, content: bytes) -> None:
        write_file(self._folder / name, content)
        self._files[name] = hashlib.sha256(content).hexdigest()

    def _read(self, position: int, nbytes: int) -> bytes:
        return read_at(
            self._segment.uri, position, nbytes, storage_options=self._log.storage_options
        )

    def _check(self, content: bytes, offset: int, flags: int) -> tuple[RecordStatus, int]:
        end = self._segment.end_offset
        status, size = kernels.message.check_record(content, 0, len(content), offset, end, flags)
        return RecordStatus(status), size

    def _record_at(self, offset: int) -> tuple[RecordStatus, bytes]:
        """Return the status at an offset of the segment, and the bytes of a complete record."""
        position = offset - self._segment.base_offset
        claimed = int.from_bytes(self._read(position, 4), "big", signed=True)
        longest = max(0, min(claimed, self._segment.file_size - position))
        content = self._read(position, max(longest, _HEAD.nbytes))
        status, size = self._check(content, offset, int(RecordFlags.CHECK_BODY_CRC))
        return status, content[:size] if status in _GOOD else b""

    # --- the record ---------------------------------------------------------------------------

    def describe_record(self) -> None:
        """Keep the record, its fields and CRCs; or the bytes of a place without one."""
        status, record = self._record_at(self._offset)
        if not record:
            content = self._read(self._position, _DAMAGED_NBYTES)
            self._write("place.bin", content)
            reason = describe(status, self._offset)
            self.document["record"] = {"status": status.name, "reason": reason, "file": "place.bin"}
            self._findings.append(f"there is no good record: {reason}")
            return
        self._end = self._offset + len(record)
        message = StoredMessage(record, 0, self._offset, self._segment.end_offset)
        self._message = message
        self._write("record.bin", record)
        self._write("body.bin", message.body)
        self.document["record"] = {
            "status": status.name,
            "file": "record.bin",
            "bytes": len(record),
            "sha256": self._files["record.bin"],
            "fields": _fields(message),
            "crc": self._crcs(message),
        }

    def _crcs(self, message: StoredMessage) -> dict[str, Any]:
        found = zlib.crc32(message.body) & 0x7FFFFFFF
        row = bytearray(formats.PARSED_RECORD.nbytes)
        kernels.message.scan_records(
            bytes(message.raw), 0, message.store_size, self._offset, self._segment.end_offset,
            int(RecordFlags.REPORT_PROPERTY_CRC), row,
        )  # fmt: skip
        names = (item.name for item in formats.PARSED_RECORD.fields)
        values = dict(zip(names, formats.PARSED_RECORD.struct.unpack(row), strict=True))
        whole = {0: "absent", 1: "right"}.get(values["property_crc"], "wrong")
        if whole == "wrong":
            self._findings.append("the CRC of the whole record is wrong")
        return {"body": {"stored": message.body_crc, "computed": found,
                         "right": message.body_crc == found}, "wholeRecord": whole}  # fmt: skip

    # --- neighbours ---------------------------------------------------------------------------

    def describe_neighbours(self, progress: Progress | None) -> None:
        """Keep the records before and after, of the same segment."""
        before = _LastBefore()
        splits = plan_splits(
            self._log, split_bytes=self._segment.segment_size, start=self._segment.base_offset,
            stop=self._offset,
        )  # fmt: skip
        for split in splits if self._position else ():
            for _ in walk(split, before, on_corruption="skip", check_crc=False):
                pass
            if progress is not None:
                progress("reading the segment", split.stop, split.stop)
        neighbours: dict[str, Any] = {"before": None, "after": None}
        if before.offset is not None:
            neighbours["before"] = self._neighbour("before.bin", before.offset)
            if before.offset + neighbours["before"]["bytes"] != self._offset:
                self._findings.append("the record before does not end where this one begins")
        if self._message is not None and self._end < self._segment.end_offset:
            neighbours["after"] = self._neighbour("after.bin", self._end)
        self.document["neighbours"] = neighbours

    def _neighbour(self, name: str, offset: int) -> dict[str, Any]:
        status, record = self._record_at(offset)
        found: dict[str, Any] = {"offset": offset, "status": status.name, "bytes": len(record)}
        if record:
            self._write(name, record)
            message = StoredMessage(record, 0, offset, self._segment.end_offset)
            found |= {"file": name, "sha256": self._files[name], "topic": message.topic,
                      "storeTimestamp": message.store_timestamp}  # fmt: skip
        return found

    # --- references ---------------------------------------------------------------------------

    def describe_references(self, store: DefaultMessageStore) -> None:
        """Add what queue and index say about the record."""
        message = self._message
        if message is None:
            return
        reader = store.reader
        kind = message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
        queued = kind not in (
            formats.SYS_FLAG_TRANSACTION_PREPARED,
            formats.SYS_FLAG_TRANSACTION_ROLLBACK,
        )
        queue = reader.queues.get(message.topic, message.queue_id)
        unit = None if queue is None else queue.unit(message.queue_offset)
        right = unit is not None and unit[:2] == (self._offset, message.store_size)
        self.document["unit"] = None if unit is None else {
            "topic": message.topic, "queueId": message.queue_id,
            "queueOffset": message.queue_offset, "physicalOffset": unit[0], "size": unit[1],
            "tagsCode": unit[2], "right": right,
        }  # fmt: skip
        if queued and not right:
            expired = queue is not None and message.queue_offset < queue.min_index
            if not expired:
                self._findings.append("no unit of its queue names the record")
        self.document["index"] = list(self._index_entries(store, message))
        if kind != formats.SYS_FLAG_TRANSACTION_ROLLBACK:
            missing = [one["key"] for one in self.document["index"] if not one["files"]]
            if missing and reader.index.files:
                self._findings.append(f"no index file has the key {missing[0]!r}")

    def _index_entries(
        self, store: DefaultMessageStore, message: StoredMessage
    ) -> Iterator[dict[str, Any]]:
        keys = [message.unique_key or "", *(message.keys or "").split(formats.KEY_SEPARATOR)]
        for key in dict.fromkeys(key for key in keys if key):
            text = f"{message.topic}{formats.INDEX_KEY_SEPARATOR}{key}".encode("utf-8", "replace")
            files = []
            for file in store.reader.index.files:
                try:
                    hits, _ = file.walk_key(text, 0, 2**63 - 1)
                except (OSError, CorruptionError) as error:
                    self._findings.append(f"{file.path}: {error}")
                    continue
                if self._offset in hits:
                    files.append({"file": file.path.name, "entries": hits.count(self._offset)})
            yield {"key": key, "hash": kernels.index_file.key_hash(text), "files": files}

    # --- the segment --------------------------------------------------------------------------

    def describe_segment(self, progress: Progress | None) -> None:
        """Add the segment's hash."""
        digest, done = hashlib.sha256(), 0
        buffer = memoryview(bytearray(_HASH_STEP_NBYTES))
        file = open_input(self._segment.uri)
        try:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
                done += count
                if progress is not None:
                    progress("hashing the segment", done, max(done, self._segment.file_size))
        finally:
            file.close()
        about = os.stat(self._segment.uri)
        self.document["segment"] = {
            "file": self._segment.uri,
            "start": self._segment.base_offset,
            "position": self._position,
            "bytes": done,
            "mtimeNs": about.st_mtime_ns,
            "sha256": digest.hexdigest(),
        }

    def finish(self, path: str | os.PathLike[str]) -> Evidence:
        """Write ``evidence.json``; return the result."""
        self.document |= {
            "store": os.path.abspath(path),
            "madeBy": __version__,
            "takenAt": time.time_ns() // 1_000_000,
            "findings": self._findings,
            "files": [{"name": name, "sha256": value} for name, value in self._files.items()],
        }
        text = json.dumps(self.document, indent=2, ensure_ascii=True) + "\n"
        write_file(self._folder / "evidence.json", text.encode())
        names = [*self._files, "evidence.json"]
        return Evidence(str(self._folder), self._offset, self.document, names, self._findings)


def _fields(message: StoredMessage) -> dict[str, Any]:
    stored = message.properties_bytes
    return {
        "magic": message.magic_code,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "bodySize": len(message.body_view),
        "properties": message.properties,
        "propertiesBase64": base64.b64encode(stored).decode("ascii"),
        "offsetMsgId": message.msg_id,
    }
