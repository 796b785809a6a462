"""Index files: header, hash slots, entries. ``buffer`` is the whole file; ``slots`` and
``entries`` its geometry (each at least 1, ``index_file_nbytes(slots, entries) <= len(buffer)``,
else ``ValueError``). Every chain walk is checked against the file and bounded: entry numbers fall
along a chain, and where they do not the walk ends (BAD_CHAIN). Array arguments are buffers of
native integers (or of their bytes). Native bodies are guarded and, but for the smallest, run
without the GIL; where a kernel has no status to answer, a mapping whose file was shortened raises
``OSError`` (EFAULT)."""

from typing_extensions import Buffer

def key_hash(text: Buffer, /) -> int:
    """abs(String.hashCode), 0 for -2**31: what entries store for the UTF-8 bytes of
    ``topic#key``."""

def init_header(buffer: Buffer, end_timestamp: int, end_physical_offset: int, /) -> None:
    """Preset a new file's header from the previous file (begin = end = given, only where > 0)."""

def read_header(buffer: Buffer, /) -> tuple[int, int, int, int, int, int]:
    """(begin_timestamp, end_timestamp, begin_physical_offset, end_physical_offset,
    hash_slot_count, index_count) with index_count <= 0 read as 1. ``ValueError`` below 40
    bytes."""

def put_key(
    buffer: Buffer,
    slots: int,
    entries: int,
    key: Buffer,
    physical_offset: int,
    store_timestamp: int,
    /,
) -> bool:
    """IndexFile.putKey of the UTF-8 bytes ``topic#key``: entry, then slot, then header. False:
    full."""

def put_hashes(
    buffer: Buffer,
    slots: int,
    entries: int,
    hashes: Buffer,
    physical_offsets: Buffer,
    store_timestamps: Buffer,
    /,
) -> int:
    """put_key for arrays (int32 key hashes, int64, int64; ``ValueError`` for a negative hash,
    nothing put); returns how many were put before it was full. The header is written once, at the
    end."""

def select_offsets(
    buffer: Buffer, slots: int, entries: int, key: Buffer, max_count: int, begin: int, end: int, /
) -> tuple[list[int], int]:
    """selectPhyOffset, faithful (D-3): newest first, hash match only, seconds, at most
    ``max_count``. Status OK or BAD_CHAIN (a number that does not fall or lies outside the file, a
    negative time), with what is real."""

def walk_key(
    buffer: Buffer, slots: int, entries: int, key: Buffer, begin: int, end: int, /
) -> tuple[list[int], int]:
    """All offsets of the key's hash, newest first, for ``find``: begin widened by 1 s and end
    kept, no early stop by time, entry 1 counted at the header's begin time (D-2), uncapped. A
    difference of 0 also stands for every time before the file's begin (a clock set back), so
    ``end`` does not exclude such an entry, nor ``begin`` where the begin time is not positive:
    callers test the message's own time."""

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
    """Batched walk_key from hash number ``start``: int32 hashes (``ValueError`` for a negative
    one); hits as (int64 number of the hash, int64 physical offset) into the two arrays, ordered
    by hash number, newest first within one. Returns (hits, next hash number to ask (==
    len(hashes) when done; the arrays were too small for all hits of that hash otherwise; what
    lies behind ``hits`` is arbitrary), status: OK, BAD_CHAIN or FAULT (then no hits))."""

def check_entries(buffer: Buffer, slots: int, entries: int, log_end: int, /) -> tuple[int, int]:
    """Validate entries 1..count-1 (offset in [0, log_end), non-decreasing, hash >= 0, diff >= 0,
    previous < own number), the header (count <= entries, offsets of entry 1 and the last) and the
    links: every slot and previous number is what putting the entries in order gives, since behind
    a kill or a power cut slots may lead past the count or lag, and puts would lose what hangs on
    them. Returns (number of good leading entries, status OK | BAD_ENTRY | FAULT); BAD_ENTRY with
    all entries good means that ``rebuild`` with that count mends the file. Takes memory for the
    slots for the time of the call."""

def rebuild(
    buffer: Buffer,
    slots: int,
    entries: int,
    count: int,
    store_timestamps: tuple[int, int],
    content_end: int | None = None,
    /,
) -> None:
    """Keep entries 1..count: zero what lies behind and entry 0 (only where it is not zero, so
    that sparse files stay sparse), rebuild slots, previous numbers and header from them;
    ``store_timestamps`` are those of the first and the last kept entry. The time differences
    stay. With count 0 the whole file is zeroed. ``content_end``: the caller knows that zeros lie
    behind this position; they are not read, as every page of a hole that is read takes memory.
    ``ValueError``: no room for count, a position outside, or a kept entry with a negative hash
    (nothing changed)."""

def contradictions(buffer: Buffer, slots: int, entries: int, /) -> int:
    """How far (slots, entries) is from explaining the file (0: explains it; every fact of the
    file follows), in one pass over the file. Counted: a count beyond ``entries``; each broken
    chain (a number that does not fall or lies behind the last entry, a hash of another slot);
    each entry no chain reaches; entry 0 and each entry-sized piece behind the last entry that is
    not zero; the header's two offsets. A file without entries answers 0."""
