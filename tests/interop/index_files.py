"""The entries of a store's index files, and what RocketMQ 4.9 adds to them by D-4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketstore import formats

#: Hash and log offset.
Entry = tuple[int, int]
HEADER, SLOT, ENTRY = formats.INDEX_HEADER, formats.INDEX_SLOT, formats.INDEX_ENTRY
HEADER_NAMES = [field.name for field in HEADER.fields]
#: What the header says of the last entry, and how many there are.
GROWS = ("hash_slot_count", "index_count")


@dataclass(frozen=True)
class Parsed:
    """One index file."""

    header: Mapping[str, int]
    slots: tuple[int, ...]
    #: All fields of each entry, in the order they were put.
    entries: tuple[tuple[int, ...], ...]

    @property
    def described(self) -> dict[str, int]:
        """The header but for its counts."""
        return {name: value for name, value in self.header.items() if name not in GROWS}

    def begins_as(self, old: Parsed) -> bool:
        """Whether this is ``old`` with appended entries: also slots and header agree."""
        count = len(old.entries)
        heads = {
            row[0] % len(self.slots): number
            for number, row in enumerate(self.entries[count:], count + 1)
        }
        slots = tuple(heads.get(slot, value) for slot, value in enumerate(old.slots))
        used = sum(old.slots[slot] == 0 for slot in heads)
        return (
            self.entries[:count] == old.entries
            and self.slots == slots
            and self.described == old.described
            and self.header["hash_slot_count"] == old.header["hash_slot_count"] + used
        )


def parsed(files: Mapping[str, bytes], slots: int) -> list[Parsed]:
    """The index files among ``files``, in the order they were made."""
    found = []
    first_at = HEADER.nbytes + slots * SLOT.nbytes
    for name in sorted(files):
        if name.startswith("index/"):
            data = files[name]
            header = dict(zip(HEADER_NAMES, HEADER.struct.unpack_from(data), strict=True))
            heads = data[HEADER.nbytes : first_at]
            rows = [
                ENTRY.struct.unpack_from(data, first_at + number * ENTRY.nbytes)
                for number in range(1, header["index_count"])
            ]
            table = tuple(row[0] for row in SLOT.struct.iter_unpack(heads))
            found.append(Parsed(header, table, tuple(rows)))
    return found


def entries_of(files: Sequence[Parsed]) -> list[Entry]:
    """Hash and log offset of all entries."""
    return [(row[0], row[1]) for file in files for row in file.entries]


def is_last_again(before: Mapping[str, bytes], after: Mapping[str, Any], slots: int) -> bool:
    """Whether ``after`` has the entries of ``before`` and then the last record's once more.

    The older files are the same, byte for byte; the newest has more entries, and perhaps there is
    another file.
    """
    old, new = parsed(before, slots), parsed(after, slots)
    names = [sorted(name for name in side if name.startswith("index/")) for side in (before, after)]
    if not old or not old[-1].entries or names[1][: len(old)] != names[0]:
        return False
    if any(before[name] != after[name] for name in names[0][:-1]):
        return False
    if not new[len(old) - 1].begins_as(old[-1]):
        return False
    rows = entries_of(old)
    last = Counter(row for row in rows if row[1] == rows[-1][1])
    return Counter(entries_of(new)[len(rows) :]) == last


def is_named_twice(theirs: Sequence[Parsed], our: Sequence[Parsed]) -> bool:
    """Whether ``theirs`` are ``our`` files but for some that the next one was written over.

    Two files made in one millisecond get one name from RocketMQ (D-40): the second's entries stand
    where the first's were, after the first's slots, so some links differ and fewer slots are new.
    """
    left, found = list(our), False
    for file in theirs:
        if left and left[0] == file:
            del left[0]
            continue
        over = [number for number, one in enumerate(left) if number and _lies_over(file, one)]
        if not over:
            return False
        found = True
        del left[: over[0] + 1]
    return found and not left


def _lies_over(file: Parsed, one: Parsed) -> bool:
    """Whether ``file`` has the entries of ``one``, put where slots of another file were left."""
    count = "hash_slot_count"
    return (
        file != one
        and [row[:3] for row in file.entries] == [row[:3] for row in one.entries]
        and file.described == one.described
        and file.header["index_count"] == one.header["index_count"]
        and file.header[count] <= one.header[count]
    )
