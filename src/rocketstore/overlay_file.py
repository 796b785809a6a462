"""Files in memory that stand in for queue files which must not be written."""

from __future__ import annotations

import weakref

from rocketstore import formats
from rocketstore.log_scan import data_ranges
from rocketstore.mapped_file import MappedFile, MemoryFile
from rocketstore.mapped_file_queue import MappedFileQueue

#: Files mapped privately at one time; of others a copy is made, which takes no mapping of its own.
MAX_PRIVATE_FILES = 8192
_private: weakref.WeakSet[MappedFile] = weakref.WeakSet()


def overlay_file(queue: MappedFileQueue, start: int) -> MappedFile | MemoryFile:
    """Return a file that can be written without changing the disk, with what the file of ``queue``
    at offset ``start`` holds; zeros when there is none of its full size."""
    disk = queue.find_mapped_file_by_offset(start)
    name = queue.directory / formats.offset_to_file_name(start)
    if disk is None or disk.file_size != queue.file_size:
        return MemoryFile(name, start, queue.file_size)
    if len(_private) < MAX_PRIVATE_FILES:
        file = MappedFile(disk.path, start, disk.file_size, disk.root, writable=True, private=True)
        _private.add(file)
        return file
    copy = MemoryFile(name, start, queue.file_size)
    view = memoryview(copy.mapping)
    for position, stop in data_ranges(disk, 0):
        content = disk.read(position, stop - position)
        view[position : position + len(content)] = content
    return copy
