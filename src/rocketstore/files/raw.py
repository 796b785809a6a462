"""Reading files that another process may change: by descriptor, and without reading holes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore.errors import MappedFileError
from rocketstore.files.durable import READ_ONLY, naming, open_regular_file
from rocketstore.files.mapped_file import MappedFile, MemoryFile


def data_ranges(file: MappedFile, position: int) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) ranges after ``position`` that may hold other bytes than zeros.

    Holes and reserved blocks are skipped if the file system reports them. So a search past the
    end of a sparse segment does not read a gigabyte of zeros.
    """
    seek_data = getattr(os, "SEEK_DATA", None)
    if seek_data is None:
        yield position, file.file_size
        return
    try:
        fd = os.open(file.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        yield position, file.file_size  # deleted meanwhile; its mapping is still valid
        return
    try:
        while position < file.file_size:
            try:
                start = os.lseek(fd, position, seek_data)
                stop = os.lseek(fd, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return  # only a hole up to the end
                if error.errno != errno.EINVAL:
                    raise
                start, stop = position, file.file_size  # the file system does not report holes
            yield max(start, position), min(stop, file.file_size)
            position = stop
    finally:
        os.close(fd)


def read_bytes(file: MappedFile | MemoryFile, root: Path, position: int, nbytes: int) -> bytes:
    """Read bytes of a file, on disk with ``pread``: a truncated file then raises no signal.

    If the store's writer has deleted the file, read from its mapping.

    Raises ``MappedFileError`` if the file was truncated.
    """
    if isinstance(file, MemoryFile) or file.private:
        return bytes(memoryview(file.mapping)[position : position + nbytes])
    try:
        fd = open_regular_file(file.path, READ_ONLY, root)
    except FileNotFoundError:
        return bytes(file.view[position : position + nbytes])
    try:
        with naming(file.path):
            content = os.pread(fd, nbytes, position)
    finally:
        os.close(fd)
    if len(content) < nbytes:
        raise MappedFileError(
            f"{file.path} was truncated from {file.file_size} to {position + len(content)} bytes"
        )
    return content
