"""Index files: header, hash slots, entries. ``buffer`` is the whole file; ``slots`` and ``entries``
are its geometry (each at least 1, ``index_file_nbytes(slots, entries) <= len(buffer)``, else
``ValueError``). Every chain walk is checked against the file and bounded: entry numbers fall along
a chain; where they do not, the walk ends (BAD_CHAIN). Array arguments are buffers of native
integers (or of their bytes). Native bodies are guarded and, except for the smallest, run without
the GIL. A kernel that returns no status raises ``OSError`` (EFAULT) if the mapped file was
shortened."""

from collections.abc import Callable

from typing_extensions import Buffer

def key_hash(text: Buffer, /) -> int:
    """Return abs(String.hashCode), 0 for -2**31: the hash that entries store for the UTF-8 bytes
    of ``topic#key``."""

def init_header(buffer: Buffer, end_timestamp: int, end_physical_offset: int, /) -> None:
    """Preset a new file's header from the previous file (begin = end = given, only if > 0)."""

def read_header(buffer: Buffer, /) -> tuple[int, int, int, int, int, int]:
    """Return (begin_timestamp, end_timestamp, begin_physical_offset, end_physical_offset,
    hash_slot_count, index_count); index_count <= 0 is read as 1. ``ValueError`` below 40 bytes."""

def put_key(
    buffer: Buffer,
    slots: int,
    entries: int,
    key: Buffer,
    physical_offset: int,
    store_timestamp: int,
    /,
) -> bool:
    """Put a key (UTF-8 bytes ``topic#key``) like IndexFile.putKey: entry, then slot, then header.
    Return False if the file is full."""

def put_hashes(
    buffer: Buffer,
    slots: int,
    entries: int,
    hashes: Buffer,
    physical_offsets: Buffer,
    store_timestamps: Buffer,
    /,
) -> int:
    """Put many keys (int32 key hashes, int64, int64); return how many fitted. ``ValueError`` for a
    negative hash, and nothing is put. The header is written once, at the end."""

def select_offsets(
    buffer: Buffer, slots: int, entries: int, key: Buffer, max_count: int, begin: int, end: int, /
) -> tuple[list[int], int]:
    """Search exactly like selectPhyOffset (D-3): newest first, hash match only, seconds, at most
    ``max_count``. Status OK or BAD_CHAIN (a number that does not fall or is outside the file, a
    negative time), with the offsets found so far."""

def walk_key(
    buffer: Buffer, slots: int, entries: int, key: Buffer, begin: int, end: int, /
) -> tuple[list[int], int]:
    """Return all offsets of the key's hash, newest first, for ``find``: begin widened by 1 s and
    end kept, no early stop by time, entry 1 counted at the header's begin time (D-2), unlimited. A
    difference of 0 also stands for every time before the file's begin (a clock set back). So
    ``end`` does not exclude such an entry, nor does ``begin`` if the begin time is not positive.
    Callers test the message's own time."""

def lookup(
    buffer: Buffer,
    slots: int,
    entries: int,
    hashes: Buffer,
    begin: int,
    end: int,
    out_keys: Buffer,
    out_offsets: Buffer,
    start: int,
    /,
) -> tuple[int, int, int]:
    """Run walk_key for many hashes, from hash number ``start``: int32 hashes (``ValueError`` for a
    negative one). Hits go as (int64 number of the hash, int64 physical offset) into the two arrays,
    ordered by hash number, newest first for each. Return (hits, next hash number, status). The next
    number is len(hashes) at the end; otherwise the arrays had no room for all hits of that hash.
    Status: OK, BAD_CHAIN, or FAULT (without hits). Elements after ``hits`` are arbitrary."""

def check_entries(
    buffer: Buffer,
    slots: int,
    entries: int,
    log_end: int,
    passed: Callable[[int], object] | None = None,
    /,
) -> tuple[int, int]:
    """Validate entries 1..count-1 (offset in [0, log_end), non-decreasing, hash >= 0, diff >= 0,
    previous < own number), the header (count <= entries, offsets of entry 1 and the last) and the
    links. Every slot and previous number must be the result of putting the entries in order: after
    a kill or a power cut slots may point past the count or lag, and puts would lose their chains.
    Return (number of valid leading entries, status OK | BAD_ENTRY | FAULT). BAD_ENTRY with only
    valid entries means that ``rebuild`` with that count repairs the file. Allocates memory for the
    slots during the call. ``passed(number)`` is called after each 2**20 valid entries if more
    follow: entries up to ``number`` are not read again, so their pages can be released."""

def rebuild(
    buffer: Buffer,
    slots: int,
    entries: int,
    count: int,
    store_timestamps: tuple[int, int],
    content_end: int | None = None,
    /,
) -> None:
    """Keep entries 1..count: zero entry 0 and all bytes after the kept entries, and rebuild slots,
    previous numbers and header. Bytes that are zero are not written, so sparse files stay sparse.
    ``store_timestamps`` are those of the first and the last kept entry; time differences stay. With
    count 0 the whole file is zeroed. ``content_end``: only zeros follow this position; they are not
    read, since reading the pages of a hole takes memory. ``ValueError``, with nothing changed: no
    room for count, a position outside, or a kept entry with a negative hash."""

def contradictions(buffer: Buffer, slots: int, entries: int, /) -> int:
    """Return the number of facts in the file that contradict (slots, entries), in one pass; 0 if
    they explain the file completely. Counted: a count above ``entries``; each broken chain (a
    number that does not fall or is past the last entry, a hash of another slot); each entry that no
    chain reaches; entry 0 and each entry-sized piece after the last entry that is not zero; the
    header's two offsets. A file without entries gives 0."""
