"""Commit-log records: check, parse, encode, search; hosts and properties as stored.

A *record buffer* is any contiguous bytes-like object that holds log bytes. ``base_offset`` is the
physical offset of its byte 0, ``segment_end`` the physical offset after its segment, and ``stop``
the position in the buffer after the last byte that may be read. No length from the buffer is
trusted. Native bodies run without the GIL and guarded against SIGBUS (status ``FAULT``; a kernel
that returns no status raises ``OSError`` with ``EFAULT``). Statuses are ``RecordStatus`` values,
flags ``RecordFlags`` bits, as plain ints.
"""

from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import Buffer

def crc32(data: Buffer, value: int = 0, /) -> int:
    """CRC-32 like ``zlib.crc32`` (unsigned)."""

def string_hash_code(text: Buffer, /) -> int:
    """Return Java's ``String.hashCode`` (i32) of UTF-8 bytes as Java would decode them (malformed
    -> U+FFFD per Java's rules, supplementary characters as two surrogates)."""

def check_record(
    buffer: Buffer, position: int, stop: int, base_offset: int, segment_end: int, flags: int = 1, /
) -> tuple[int, int]:
    """Check one record strictly. Return (status, total_size); total_size is the bytes to skip if
    the status is OK, BLANK, GHOST, NUL_PROPERTIES or UNSAFE_TOPIC, else 0."""

def scan_records(
    buffer: Buffer,
    position: int,
    stop: int,
    base_offset: int,
    segment_end: int,
    flags: int,
    out: Buffer,
    delay_ms: Sequence[int] = (),
    /,
) -> tuple[int, int, int]:
    """Parse consecutive records into rows of ``formats.PARSED_RECORD``; the length of the writable
    ``out`` sets the capacity. OK, GHOST, NUL_PROPERTIES and UNSAFE_TOPIC records become rows and
    the scan continues. Return (rows, next_position, status): OK if ``out`` is full, END if
    ``position`` reached ``stop``, otherwise the status of the place ``next_position`` (BLANK: the
    blank starts there; EMPTY; INCOMPLETE; damage). ``delay_ms[level - 1]`` are the delay levels for
    the tags code (deliver time) of SCHEDULE_TOPIC_XXXX records. Levels above the table are capped;
    with an empty table the delay is 1000 ms, as in RocketMQ for an unknown level."""

def find_record(
    buffer: Buffer, position: int, stop: int, base_offset: int, segment_end: int, /
) -> int:
    """Return the position of the first record at or after ``position`` that passes the strict check
    (body CRC included) at its own offset, or -1. Runs at memory speed over garbage; the work is
    bounded by the bytes searched, even if many headers claim the same long body."""

def parse_properties(data: Buffer, /) -> dict[str, str]:
    """Return properties as RocketMQ >= 4.9.1 reads them (empty names and values dropped, last
    duplicate wins, order of first appearance as in a dict), malformed UTF-8 replaced."""

def encode_properties(properties: Mapping[str, str], trailing_separator: bool, /) -> bytes: ...
def hash_map_order(names: Iterable[str], buckets: int, /) -> list[str]:
    """Return names in the order in which a Java ``HashMap`` of ``buckets`` (a power of two, else
    ``ValueError``) lists them, after they were put into it in turn. It doubles when more than
    three quarters of its buckets' number of names are in it."""

def reordered_properties(data: Buffer, buckets: int, trailing_separator: bool, /) -> bytes:
    """Return stored properties in the order in which a broker writes them again, like
    ``rewritten_properties``, but keep their bytes: values may be empty, and text that is not UTF-8
    is not replaced. Pairs without a separator or a name are dropped. A name given again keeps its
    place and gets the last value that is not empty. ``ValueError``: more than 32767 bytes, or
    ``buckets`` is not a power of two."""

def rewritten_properties(
    properties: Mapping[str, str], buckets: int, trailing_separator: bool, /
) -> bytes:
    """Return what a broker stores when it parses properties and writes them again, as for
    delayed, retried and transactional messages: ``encode_properties`` in the order of its hash
    map. ``buckets`` is ``Dialect.property_buckets``. Properties come in the order in which they
    were put into the map, those that were stored first."""

def encode_record(
    topic: str,
    body: Buffer,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: str,
    store_timestamp: int,
    store_host: str,
    reconsume_times: int,
    prepared_transaction_offset: int,
    properties: bytes,
    version: int = 1,
    property_crc: bool = False,
    /,
) -> bytes:
    """Return one whole record. ``properties`` are stored bytes; the host bits of sys_flag are
    derived from the hosts. ``property_crc`` appends the 20-byte tail, and a missing separator
    before it."""

def parse_host(host: str, /) -> bytes:
    """Convert ``"10.0.0.1:1234"`` or ``"[2001:db8::1]:1234"`` to the 8 or 20 stored bytes.
    ``ValueError`` for any other text."""

def format_host(data: Buffer, /) -> str: ...
def message_id(store_host: Buffer, physical_offset: int, /) -> str:
    """Return the offsetMsgId: upper-case hex of host bytes and offset (32 or 56 characters)."""
