"""Find the log to read: a store, a bare log folder, or one segment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import configured_logs
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import is_zeros
from rocketstore.sources.files import read_at
from rocketstore.sources.segments import LogFiles, Segment, list_log
from rocketstore.sources.splits import Split, plan_splits

_HEAD_NBYTES = 128


def open_log(path: str | os.PathLike[str], config: MessageStoreConfig | None = None) -> LogFiles:
    """List the log at ``path``, with missing and unreadable segments; open and lock nothing.

    Parameters
    ----------
    path : str or path-like
        A store's root, its log's folder, or one segment.
    config : MessageStoreConfig, optional
        ``store_path_commit_log`` names a log outside the root, in one folder or several.

    Raises
    ------
    FileNotFoundError, MappedFileError, UnsafePathError, PermissionError
        As ``rocketstore.sources.list_log`` raises.
    """
    place = Path(path)
    if place.is_file():
        return _one_segment(place)
    folders = (place,) if config is None else configured_logs(config) or (place,)
    for folder in map(Path, folders):
        if folder != place and not folder.is_dir():
            raise MappedFileError(
                f"there is no folder {folder}, which storePathCommitLog (--commit-log) names"
            )
    return list_log(
        folders[0], allow_holes=True, tolerate_unreadable=True, more_folders=folders[1:]
    )


def _one_segment(path: Path) -> LogFiles:
    """Return the log that one segment makes; its name or its first record says where it begins."""
    nbytes = path.stat().st_size
    head = read_at(str(path), 0, _HEAD_NBYTES)
    base = formats.file_name_to_offset(path.name)
    if base is None:
        layout = formats.RECORD_HEAD
        if len(head) < formats.RECORD_MIN_NBYTES:
            raise MappedFileError(f"{path} is no segment: {nbytes} bytes hold no record")
        names = (field.name for field in layout.fields)
        values = dict(zip(names, layout.struct.unpack_from(head), strict=True))
        if values["magic"] not in (formats.MAGIC_V1, formats.MAGIC_V2):
            raise MappedFileError(
                f"{path} is no segment: its name is no offset, and it does not begin with a record"
            )
        base = values["physical_offset"]
    if not nbytes:
        raise MappedFileError(f"{path} is empty")
    if not is_zeros(head) and not formats.MIN_COMMIT_LOG_FILE_NBYTES <= nbytes < 2**31:
        raise MappedFileError(f"{path} has {nbytes} bytes, which is no size of a segment")
    segment = Segment(str(path), base, nbytes, nbytes)
    return LogFiles(str(path), (segment,), nbytes)


def whole_segments(
    log: LogFiles, start: int | None = None, stop: int | None = None
) -> Iterator[Split]:
    """Yield one split for each segment that has bytes of ``start`` to ``stop``."""
    if log.segments:
        nbytes = max(segment.segment_size for segment in log.segments)
        yield from plan_splits(log, split_bytes=nbytes, start=start, stop=stop)


def stored_text(stored: bytes) -> str:
    """Decode a stored name as messages do; invalid UTF-8 is replaced."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        pair = b"x\x01" + stored + b"\x02"
        return str(kernels.message.parse_properties(pair)["x"])
