"""Reading files that another process changes: by descriptor, and only where there is data."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore.errors import MappedFileError
from rocketstore.files.durable import READ_ONLY, naming, open_regular_file
from rocketstore.files.mapped_file import MappedFile, MemoryFile


def data_ranges(file: MappedFile, position: int) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) positions behind ``position`` that may hold anything but zeros.

    Holes and reserved blocks are passed over where the file system can tell, so that looking behind
    the end of a sparse segment does not read a gigabyte of zeros.
    """
    seek_data = getattr(os, "SEEK_DATA", None)
    if seek_data is None:
        yield position, file.file_size
        return
    try:
        fd = os.open(file.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        yield position, file.file_size  # deleted while it is read: its mapping is left
        return
    try:
        while position < file.file_size:
            try:
                start = os.lseek(fd, position, seek_data)
                stop = os.lseek(fd, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return  # nothing but a hole up to the end
                if error.errno != errno.EINVAL:
                    raise
                start, stop = position, file.file_size  # the file system cannot tell
            yield max(start, position), min(stop, file.file_size)
            position = stop
    finally:
        os.close(fd)


def read_bytes(file: MappedFile | MemoryFile, root: Path, position: int, nbytes: int) -> bytes:
    """Bytes of a file, by ``pread`` where it is on disk, so that a shortened file cannot kill us.

    Of one that the store's writer has deleted meanwhile, the mapping is left.

    Raises ``MappedFileError`` when the file has become shorter.
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
            f"{file.path} has only {position + len(content)} of {file.file_size} bytes any more"
        )
    return content
