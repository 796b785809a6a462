"""Lists a store's log: its segments, their first offsets and their sizes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.config import DEFAULT_COMMIT_LOG_FILE_SIZE
from rocketstore.directory.checkpoint import StoreCheckpoint, read_small_file, signed_crc
from rocketstore.directory.parts import (
    dledger_refusal,
    is_dledger_head,
    is_dledger_name,
    refuse_dledger,
)
from rocketstore.directory.place import check_root, is_there
from rocketstore.directory.state import StoreState
from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.files.durable import no_folder, refuse_link_out
from rocketstore.files.mapped_file_queue import check_place, list_directories, shown_file_size
from rocketstore.sources.files import RemoteEntry, RemoteFiles, local_path, remote_files
from rocketstore.survey.lost_log import PlacesBelow, refuse_lost_log

#: Bytes at a segment's beginning that show whether it belongs to a DLedger log.
_HEAD_NBYTES = 64
#: Folders and files of a store's root; a folder with one of them is a store.
_STORE_NAMES = (
    *(formats.COMMIT_LOG_DIR, formats.CONSUME_QUEUE_DIR, formats.CHECKPOINT_FILE),
    *(formats.STATE_FILE, "consumequeue_rocksdb", formats.BATCH_QUEUE_DIR),
)
#: Reading a log takes only a path, so there is no option for a log outside the store.
_ELSEWHERE = "give the log's folder as the path instead of the store's"


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a log.

    Attributes
    ----------
    uri : str
        Path or URI.
    base_offset : int
        Physical offset of the first byte, from the file name.
    file_size : int
        Bytes present, at most ``segment_size``.
    segment_size : int
        Bytes of a complete segment.
    """

    uri: str
    base_offset: int
    file_size: int
    segment_size: int

    @property
    def end_offset(self) -> int:
        """Physical offset after the complete segment."""
        return self.base_offset + self.segment_size


@dataclass(frozen=True, slots=True)
class LostStretch:
    """Physical offsets ``start`` to ``stop`` that cannot be read, with the file and the reason."""

    start: int
    stop: int
    uri: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The segments of a store's log at the time of listing.

    Attributes
    ----------
    root : str
        Path or URI that was listed: a store's root or a log's folder.
    segments : tuple of Segment
        Ascending; empty for a store without messages.
    segment_size : int
        Bytes of a complete segment.
    storage_options : dict or None
        Options for opening remote storage.
    durable_offset : int
        Offset up to which the log was on disk when rocketstore last wrote its state file; 0 if
        unknown, or if a broker wrote the store since.
    """

    root: str
    segments: tuple[Segment, ...]
    segment_size: int
    storage_options: dict[str, Any] | None = None
    durable_offset: int = 0
    #: Segments that exist but cannot be read, and a missing end of the log.
    unreadable: tuple[LostStretch, ...] = ()

    @property
    def lost(self) -> list[LostStretch]:
        """All parts that are missing or cannot be read, ascending.

        Segments missing in a row are one part, named by the first.
        """
        known = {stretch.start for stretch in self.unreadable}
        missing = [
            LostStretch(start, stop, self.uri_of(start), "the segment is missing")
            for start, stop in self.holes
            if start not in known
        ]
        return sorted([*self.unreadable, *missing], key=lambda stretch: stretch.start)

    def uri_of(self, base_offset: int) -> str:
        """Return the path or URI of the segment that begins at ``base_offset``."""
        folder = self.segments[0].uri.rsplit("/", 1)[0]
        return f"{folder}/{formats.offset_to_file_name(base_offset)}"

    def first_lost(self, start: int | None = None, stop: int | None = None) -> LostStretch | None:
        """Return the first part of a range that cannot be read, or ``None``."""
        first = 0 if start is None else start
        return next(
            (one for one in self.lost if one.stop > first and (stop is None or one.start < stop)),
            None,
        )

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte, 0 without segments."""
        if not self.segments:
            return 0
        return min([self.segments[0].base_offset, *(one.start for one in self.unreadable)])

    @property
    def end_offset(self) -> int:
        """Physical offset after the last file's last byte, 0 without segments."""
        last = self.segments[-1] if self.segments else None
        return last.base_offset + last.file_size if last is not None else 0

    @property
    def nbytes(self) -> int:
        """Total size of all files."""
        return sum(segment.file_size for segment in self.segments)

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Physical offsets (start, stop) of segments missing between two existing ones."""
        return tuple(
            (one.end_offset, other.base_offset)
            for one, other in itertools.pairwise(self.segments)
            if one.end_offset != other.base_offset
        )


def list_log(
    uri: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow_holes: bool = False,
    tolerate_unreadable: bool = False,
    more_folders: Sequence[str | os.PathLike[str]] = (),
) -> LogFiles:
    """List the segments of a store's log, without locking, mapping or writing anything.

    Parameters
    ----------
    uri : str or path-like
        A store's root or its ``commitlog`` folder: a path, a ``file:`` URI, or any URI that fsspec
        or ``pyarrow.fs`` opens (``s3://bucket/store``).
    storage_options : mapping, optional
        Passed to fsspec.
    allow_holes : bool
        Accept a log with missing segments in its middle; see ``LogFiles.holes``.
    tolerate_unreadable : bool
        List segments that are not readable or not regular files in ``LogFiles.unreadable`` (local
        logs only). Skip later segments whose name is not a multiple of the segment size.
    more_folders : sequence of str or path-like
        Further local folders with segments of the same log, if ``uri`` is one of several over which
        a broker distributed them (``storePathCommitLog`` with commas).

    Returns
    -------
    LogFiles

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        There is no store.
    PermissionError
        A segment is not readable; with ``tolerate_unreadable`` only if none is.
    MappedFileError
        The log is a DLedger log, or segments in its middle are missing. Or a segment is not a
        regular file, or does not begin at a multiple of the segment size, or is in two folders. Or
        the log's folder is not a folder.
    UnsafePathError
        The log's folder or a segment is a link that leaves the store.
    ConfigError
        No installed package can open the URI.
    """
    path = local_path(uri)
    options = dict(storage_options) if storage_options else None
    if path:
        found = _list_local(path, more_folders, tolerate_unreadable=tolerate_unreadable)
    else:
        found = _list_remote(os.fspath(uri), options)
    hint = found.state.commit_log_file_size if found.state is not None else None
    files = sorted(file for file in found.files if file[2])
    starts, sizes = [start for start, _, _ in files], [size for _, _, size in files]
    shown = shown_file_size(starts, sizes, hint)
    if shown is None or not formats.MIN_COMMIT_LOG_FILE_NBYTES <= shown < 2**31:
        shown = hint or DEFAULT_COMMIT_LOG_FILE_SIZE
    segments = tuple(
        Segment(name, start, min(nbytes, shown), shown)
        for start, name, nbytes in files
        if start <= 2**63 - 1 - shown
    )
    for segment in segments[:1] if tolerate_unreadable else segments:
        check_place(segment.base_offset, segment.uri, shown)
    segments = tuple(segment for segment in segments if segment.base_offset % shown == 0)
    lost = tuple(_unreadable(found, segments, shown))
    log = LogFiles(os.fspath(uri), segments, shown, options, found.durable_offset, lost)
    if log.holes and not allow_holes:
        start, stop = log.holes[0]
        raise MappedFileError(
            f"the log of {log.root} has no bytes {start} to {stop}: the file {log.uri_of(start)} "
            "is missing"
        )
    return log


def _unreadable(
    found: _Found, segments: Sequence[Segment], segment_size: int
) -> Iterator[LostStretch]:
    """Yield unreadable segments, empty segments before later ones, and a missing end."""
    for start, uri, why in found.unreadable:
        if start % segment_size == 0:
            yield LostStretch(start, start + segment_size, uri, why)
    last = segments[-1].base_offset if segments else -1
    for start, uri, nbytes in found.files:
        if nbytes == 0 and start < last and start % segment_size == 0:
            reason = f"the file has 0 bytes instead of {segment_size}"
            yield LostStretch(start, start + segment_size, uri, reason)
    end = segments[-1].end_offset if segments else 0
    end = max([end, *(start + segment_size for start, *_ in found.unreadable)])
    if segments and end < found.durable_offset and not found.aborted:
        uri = f"{segments[0].uri.rsplit('/', 1)[0]}/{formats.offset_to_file_name(end)}"
        reason = f"the segment is missing: the log was flushed up to {found.durable_offset}"
        yield LostStretch(end, found.durable_offset, uri, reason)


class _Found(NamedTuple):
    """The files of a store that were found.

    ``files`` has base offset, path or URI, and size of the log's files. ``unreadable`` has base
    offset, path and reason of files that cannot be read.
    """

    files: list[tuple[int, str, int]]
    state: StoreState | None
    checkpoint: bytes
    unreadable: tuple[tuple[int, str, str], ...] = ()
    aborted: bool = False

    @property
    def durable_offset(self) -> int:
        """The flushed offset of the state file; 0 if a broker wrote the checkpoint since."""
        state = self.state
        is_valid = state is not None and state.belongs_to(signed_crc(self.checkpoint))
        return state.flushed_offset if state is not None and is_valid else 0


def _list_local(
    path: Path, more_folders: Sequence[str | os.PathLike[str]], *, tolerate_unreadable: bool
) -> _Found:
    path = Path(os.path.abspath(path))
    if not is_there(path):
        raise FileNotFoundError(f"there is no store {path}")
    if more_folders or _is_log_folder(path):
        root, folder = path.parent, path
        if path.name != formats.COMMIT_LOG_DIR:
            root = path
        refuse_dledger(root, folder)
    else:
        check_root(path, "r")
        root, folder = path, path / formats.COMMIT_LOG_DIR
        refuse_dledger(root, folder)
        names = sorted(os.listdir(root))
        if not any(name in names for name in _STORE_NAMES):
            what = names[0] if names else "nothing"
            raise _no_store(root, f"it has no folder {formats.COMMIT_LOG_DIR}, but {what}")
    _check_log_folder(folder, root)
    more = [Path(os.path.abspath(one)) for one in more_folders]
    for one in more:
        _check_log_folder(one, one)
        refuse_dledger(one, one)
    tolerant = tolerate_unreadable
    listing = list_directories(
        [folder, *more], root, tolerate_unreadable=tolerant, tolerate_odd=tolerant
    )
    if not listing.files:
        listing.refuse_unreadable()
    state = StoreState.read(root / formats.STATE_FILE, root)
    files = [(start, str(name), nbytes) for start, name, nbytes in listing.files]
    checkpoint = read_small_file(root / formats.CHECKPOINT_FILE, root)
    if root != folder:
        times = StoreCheckpoint.from_bytes(checkpoint)
        refuse_lost_log(PlacesBelow(root), listing, times, state, _ELSEWHERE)
    unreadable = tuple(
        (start, str(path), why)
        for path, why in listing.unreadable.items()
        if (start := formats.file_name_to_offset(path.name)) is not None
    )
    aborted = os.path.lexists(root / formats.ABORT_FILE)
    return _Found(files, state, checkpoint, unreadable, aborted)


def _check_log_folder(folder: Path, root: Path) -> None:
    """Raise if a log's folder is a link out of its store, or is not a folder."""
    try:
        if folder != root:
            refuse_link_out(folder, root)
    except UnsafePathError as error:
        target = os.path.realpath(folder)
        raise UnsafePathError(f"{error}; if the log is there, {_ELSEWHERE}: {target}") from None
    kind = no_folder(folder)
    if kind:
        raise MappedFileError(f"{folder} is {kind}, not a folder")


def _is_log_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder of segments, and not a store's root."""
    if not path.is_dir() or (path / formats.COMMIT_LOG_DIR).is_dir():
        return False
    if path.name == formats.COMMIT_LOG_DIR:
        return True
    return any(formats.file_name_to_offset(name) is not None for name in os.listdir(path))


def _no_store(root: object, why: str) -> FileNotFoundError:
    return FileNotFoundError(f"{root} is not a store: {why}")


def _list_remote(uri: str, options: dict[str, Any] | None) -> _Found:
    files, path = remote_files(uri, options)
    try:
        entries = files.entries(path)
    except NotADirectoryError:
        raise NotADirectoryError(f"{uri} is a file; a store is a directory") from None
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no store {uri}") from None
    uri, path = uri.rstrip("/"), path.rstrip("/")
    names = [entry.name for entry in entries]
    state, checkpoint = None, b""
    if not any(formats.file_name_to_offset(name) is not None for name in names):
        _refuse_remote_dledger(files, path, uri, entries)
        if path.rsplit("/", 1)[-1] != formats.COMMIT_LOG_DIR:
            if not any(name in names for name in _STORE_NAMES):
                what = names[0] if names else "nothing"
                raise _no_store(uri, f"it has no folder {formats.COMMIT_LOG_DIR}, but {what}")
            state, checkpoint = _remote_marks(files, path, names)
            uri, path = f"{uri}/{formats.COMMIT_LOG_DIR}", f"{path}/{formats.COMMIT_LOG_DIR}"
            entries = files.entries(path) if formats.COMMIT_LOG_DIR in names else []
    found = []
    for entry in entries:
        start = formats.file_name_to_offset(entry.name)
        if start is None:
            continue
        if entry.is_folder:
            raise MappedFileError(f"{uri}/{entry.name} is a directory, not a regular file")
        found.append((start, f"{uri}/{entry.name}", entry.size))
    aborted = formats.ABORT_FILE in names
    if found:
        start, name, _ = min(found)
        head = files.read(f"{path}/{name.rsplit('/', 1)[-1]}", 0, _HEAD_NBYTES)
        if is_dledger_head(head, start):
            raise dledger_refusal(uri)
    return _Found(found, state, checkpoint, aborted=aborted)


def _remote_marks(
    files: RemoteFiles, path: str, names: list[str]
) -> tuple[StoreState | None, bytes]:
    """Read a remote store's state file and checkpoint."""
    if formats.STATE_FILE not in names:
        return None, b""
    checkpoint = b""
    if formats.CHECKPOINT_FILE in names:
        nbytes = formats.CHECKPOINT_FILE_NBYTES
        checkpoint = files.read(f"{path}/{formats.CHECKPOINT_FILE}", 0, nbytes)
    content = files.read(f"{path}/{formats.STATE_FILE}", 0, 2 * formats.STORE_STATE.nbytes)
    return StoreState.from_bytes(content), checkpoint


def _refuse_remote_dledger(
    files: RemoteFiles, path: str, uri: str, entries: Iterable[RemoteEntry]
) -> None:
    for entry in entries:
        if entry.is_folder and is_dledger_name(entry.name):
            try:
                below = files.entries(f"{path}/{entry.name}/data")
            except FileNotFoundError:
                continue
            if any(formats.file_name_to_offset(row.name) is not None for row in below):
                raise dledger_refusal(f"{uri}/{entry.name}/data")
