"""Index files: header, hash slots, entries. ``buffer`` is the whole file; ``slots`` and ``entries`` its
geometry (``index_file_nbytes(slots, entries) <= len(buffer)``, else ``ValueError``). Every chain walk is
bounded by the entry count and checked against the file; native bodies are guarded and GIL-free."""

from collections.abc import Buffer, Sequence

def key_hash(text: Buffer, /) -> int:
    """abs(String.hashCode), 0 for -2**31: what entries store for the UTF-8 bytes of ``topic#key``."""
def init_header(buffer: Buffer, end_timestamp: int, end_physical_offset: int, /) -> None:
    """Preset a new file's header from the previous file (begin = end = given, only where > 0)."""
def read_header(buffer: Buffer, /) -> tuple[int, int, int, int, int, int]:
    """(begin_timestamp, end_timestamp, begin_physical_offset, end_physical_offset, hash_slot_count,
    index_count) with index_count <= 0 read as 1."""
def put_key(buffer: Buffer, slots: int, entries: int, key: Buffer, physical_offset: int, store_timestamp: int, /) -> bool:
    """IndexFile.putKey of the UTF-8 bytes ``topic#key``: entry, then slot, then header. False: full."""
def put_hashes(buffer: Buffer, slots: int, entries: int, hashes: Buffer, physical_offsets: Buffer, store_timestamps: Buffer, /) -> int:
    """put_key for arrays (int32 key hashes, int64, int64); returns how many were put before it was full."""
def select_offsets(buffer: Buffer, slots: int, entries: int, key: Buffer, max_count: int, begin: int, end: int, /) -> tuple[list[int], int]:
    """selectPhyOffset, faithful (D-3): newest first, hash match only, seconds. Status OK or BAD_CHAIN."""
def walk_key(buffer: Buffer, slots: int, entries: int, key: Buffer, begin: int, end: int, /) -> tuple[list[int], int]:
    """All offsets of the key's hash, newest first, for ``find``: begin widened by 1 s and end kept, no
    early stop by time, entry 1 counted at the header's begin time (D-2), uncapped."""
def lookup(buffer: Buffer, slots: int, entries: int, hashes: Buffer, begin: int, end: int, out_keys: Buffer, out_offsets: Buffer, start: int, /) -> tuple[int, int, int]:
    """Batched walk_key: int32 hashes; hits as (int64 number of the hash, int64 physical offset) into
    the two arrays, ordered by hash number, newest first within one. Returns (hits, next hash number to
    ask (== len(hashes) when done; the arrays were too small for that hash otherwise), status)."""
def check_entries(buffer: Buffer, slots: int, entries: int, log_min: int, log_end: int, /) -> tuple[int, int]:
    """Validate header and entries 1..count-1 (offset in [0, log_end), non-decreasing, hash >= 0, diff >= 0,
    previous < own number). Returns (number of good leading entries, status OK | BAD_ENTRY)."""
def rebuild(buffer: Buffer, slots: int, entries: int, count: int, store_timestamps: tuple[int, int], /) -> None:
    """Keep entries 1..count: zero what lies behind, rebuild slots, previous numbers and header from
    them; ``store_timestamps`` are those of the first and the last kept entry."""
def contradictions(buffer: Buffer, slots: int, entries: int, /) -> int:
    """How far (slots, entries) is from explaining the file (0: explains it; api.md's rules)."""
