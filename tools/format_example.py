"""A small store computed from the declared layouts, for ``docs/formats.md`` and its test.

It is computed from the layouts alone, without the kernels, so that it can check them. RocketMQ
itself opened a store with this message and answered from it.
"""

from __future__ import annotations

import ipaddress
import zlib
from dataclasses import dataclass

from rocketstore import formats

TOPIC = "TopicA"
BODY = b"hello"
PROPERTIES = (
    (formats.PROPERTY_KEYS, "k1"),
    (formats.PROPERTY_TAGS, "TagA"),
    (formats.PROPERTY_UNIQUE_KEY, "0A0102031A2B18B4AAC20000000A0007"),
)
BORN_TIMESTAMP = 1700000000000
STORE_TIMESTAMP = 1700000000500
BORN_HOST = ("10.1.2.3", 4567)
STORE_HOST = ("10.9.8.7", 10911)
HASH_SLOTS = 4
INDEX_ENTRIES = 6
SEGMENT_NBYTES = 512


@dataclass(frozen=True)
class Span:
    """Some bytes and their meaning."""

    data: bytes
    note: str


def hash_code(text: str) -> int:
    """Return Java's ``String.hashCode`` of an ASCII text."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def fields(layout: formats.Layout, **values: int | bytes) -> list[Span]:
    """Encode a layout as one span per field; the note has its name and value."""
    data = layout.struct.pack(*(values[field.name] for field in layout.fields))
    return [
        Span(data[at : at + field.nbytes], f"{field.name} {shown(values[field.name])}")
        for field, at in layout.placed()
    ]


def shown(value: int | bytes) -> str:
    """Return a value as the notes print it."""
    return str(value) if isinstance(value, int) else str(ipaddress.ip_address(value))


def host(address: str, port: int) -> list[Span]:
    """Encode a host with an IPv4 address."""
    return fields(formats.HOST_V4, address=ipaddress.ip_address(address).packed, port=port)


def properties() -> list[Span]:
    """Encode the properties, one span each, as versions from 5.2.0 on write them."""
    separators = bytes([formats.NAME_VALUE_SEPARATOR]), bytes([formats.PROPERTY_SEPARATOR])
    return [
        Span(name.encode() + separators[0] + value.encode() + separators[1], f"{name} = {value}")
        for name, value in PROPERTIES
    ]


def record() -> list[Span]:
    """Encode the whole record at physical offset 0, in version 1."""
    topic, stored = TOPIC.encode(), properties()
    nbytes = sum(len(span.data) for span in stored)
    head = fields(
        formats.RECORD_HEAD,
        total_size=formats.RECORD_MIN_NBYTES + len(BODY) + len(topic) + nbytes,
        magic=formats.MAGIC_V1,
        body_crc=zlib.crc32(BODY) & 0x7FFFFFFF,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=formats.SYS_FLAG_TRANSACTION_NOT,
        born_timestamp=BORN_TIMESTAMP,
    )
    tail = fields(
        formats.RECORD_TAIL,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_length=len(BODY),
    )
    return [
        *head,
        *host(*BORN_HOST),
        *fields(formats.RECORD_STORED, store_timestamp=STORE_TIMESTAMP),
        *host(*STORE_HOST),
        *tail,
        Span(BODY, "body"),
        Span(len(topic).to_bytes(formats.TOPIC_LENGTH_NBYTES_V1, "big"), "topic length"),
        Span(topic, f"topic {TOPIC}"),
        Span(nbytes.to_bytes(formats.PROPERTIES_LENGTH_NBYTES, "big"), "properties length"),
        *stored,
    ]


def joined(spans: list[Span]) -> bytes:
    """Return the bytes of all spans, joined."""
    return b"".join(span.data for span in spans)


def blank() -> list[Span]:
    """Encode the blank that ends the segment if the next record does not fit."""
    left = SEGMENT_NBYTES - len(joined(record()))
    return fields(formats.BLANK, total_size=left, magic=formats.BLANK_MAGIC)


def queue_unit() -> list[Span]:
    """Encode the message's unit in its consume queue."""
    tags_code = hash_code(dict(PROPERTIES)[formats.PROPERTY_TAGS])
    size = len(joined(record()))
    return fields(formats.CONSUME_QUEUE_UNIT, physical_offset=0, size=size, tags_code=tags_code)


def index_keys() -> list[str]:
    """Return the keys by which the message is indexed, in the order of its entries."""
    values = dict(PROPERTIES)
    keys = values[formats.PROPERTY_KEYS].split(formats.KEY_SEPARATOR)
    return [f"{TOPIC}#{key}" for key in (values[formats.PROPERTY_UNIQUE_KEY], *keys)]


def index_file() -> list[Span]:
    """Encode the whole index file with this one message."""
    hashes = [abs(hash_code(key)) for key in index_keys()]
    slots = [0] * HASH_SLOTS
    entries: list[Span] = []
    for number, key_hash in enumerate(hashes, start=1):
        slot = key_hash % HASH_SLOTS
        entries += fields(
            formats.INDEX_ENTRY,
            key_hash=key_hash,
            physical_offset=0,
            time_diff=0,
            previous_index=slots[slot],
        )
        slots[slot] = number
    header = fields(
        formats.INDEX_HEADER,
        begin_timestamp=STORE_TIMESTAMP,
        end_timestamp=STORE_TIMESTAMP,
        begin_physical_offset=0,
        end_physical_offset=0,
        hash_slot_count=sum(1 for slot in slots if slot),
        index_count=len(hashes) + 1,
    )
    chains = [Span(formats.INDEX_SLOT.struct.pack(s), f"slot {n}") for n, s in enumerate(slots)]
    unused = Span(bytes(formats.INDEX_ENTRY.nbytes), "entry 0, never used")
    spare = INDEX_ENTRIES - len(hashes) - 1
    rest = Span(bytes(spare * formats.INDEX_ENTRY.nbytes), "room for more entries")
    return [*header, *chains, unused, *entries, rest]


def annotated(spans: list[Span], per_line: int = 16) -> list[str]:
    """Format spans as lines ``position: hex  note``; a long span takes several lines."""
    lines, position = [], 0
    for span in spans:
        note = span.note
        for start in range(0, len(span.data), per_line):
            part = span.data[start : start + per_line]
            lines.append(f"{position:04x}: {part.hex(' '):<{3 * per_line}} {note}".rstrip())
            position, note = position + len(part), ""
    return lines
