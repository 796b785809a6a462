"""The entries of a store's index files, and what RocketMQ 4.9 adds to them by D-4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rocketstore import formats

Entry = tuple[int, int]


def entries_of(files: Mapping[str, bytes], slots: int) -> Iterator[Entry]:
    """Hash and log offset of each entry, in the order they were put."""
    header, entry = formats.INDEX_HEADER, formats.INDEX_ENTRY
    names = [field.name for field in header.fields]
    first_at = header.nbytes + slots * formats.INDEX_SLOT.nbytes
    for name in sorted(files):
        if not name.startswith("index/"):
            continue
        facts = dict(zip(names, header.struct.unpack_from(files[name]), strict=True))
        for number in range(1, facts["index_count"]):
            values = entry.struct.unpack_from(files[name], first_at + number * entry.nbytes)
            yield values[0], values[1]


def is_last_again(before: Mapping[str, bytes], after: Mapping[str, bytes], slots: int) -> bool:
    """Whether ``after`` has the entries of ``before`` and then the last record's once more."""
    old, new = list(entries_of(before, slots)), list(entries_of(after, slots))
    added = new[len(old) :]
    if not old or not added or new[: len(old)] != old:
        return False
    last = Counter(row for row in old if row[1] == old[-1][1])
    return Counter(added) == last
