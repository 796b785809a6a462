"""Every kind of damage to a commit-log record, named after its row in the list."""

from __future__ import annotations

from collections.abc import Callable

from corruption.crafted import Crafted, Record
from rocketstore import formats

Damage = Callable[[Crafted, Record], bytes]


def number(name: str, value: int | Callable[[Crafted, Record], int]) -> Damage:
    """Set a number of the record."""

    def change(store: Crafted, record: Record) -> bytes:
        wanted = value if isinstance(value, int) else value(store, record)
        return record.with_number(name, wanted)

    return change


def added(name: str, difference: int) -> Damage:
    """Add to a number of the record."""
    return number(name, lambda _, record: record.number(name) + difference)


def left(store: Crafted, record: Record) -> int:
    """Bytes from the record's start to the end of its segment."""
    return store.segment_size - record.offset % store.segment_size


def zeroed(start: Callable[[Record], int], nbytes: Callable[[Record], int]) -> Damage:
    """Zero a stretch of the record."""

    def change(_: Crafted, record: Record) -> bytes:
        at = start(record)
        stop = min(at + nbytes(record), record.size)
        assert 0 <= at < stop
        assert any(record.raw[at:stop])
        return record.with_bytes(at, bytes(stop - at))

    return change


def flipped(at: Callable[[Record], int], bit: int) -> Damage:
    """Flip one bit."""

    def change(_: Crafted, record: Record) -> bytes:
        return record.with_bytes(at(record), bytes([record.raw[at(record)] ^ 1 << bit]))

    return change


def marker(size: Callable[[Crafted, Record], int]) -> Damage:
    """A blank at the start of the record, before its other bytes."""

    def change(store: Crafted, record: Record) -> bytes:
        marked = record.with_number("magic", formats.BLANK_MAGIC)
        return formats.BLANK.struct.pack(size(store, record), formats.BLANK_MAGIC) + marked[8:]

    return change


def from_another_segment(direction: int) -> Damage:
    """A whole good record of an earlier or a later segment, of the same length."""

    def change(store: Crafted, record: Record) -> bytes:
        here = record.offset // store.segment_size
        others = [
            other
            for other in store.records
            if (other.offset // store.segment_size - here) * direction > 0
            and other.size == record.size
        ]
        if others:
            return others[0].raw
        # There is no later one when the record is the last: one from a segment yet to come.
        return record.moved_to(record.offset + direction * store.segment_size)

    return change


def two_byte_topic_length(length: int) -> Damage:
    """The topic length of a version-2 record; the record is rewritten to be one."""

    def change(_: Crafted, record: Record) -> bytes:
        raw = record.with_number("magic", formats.MAGIC_V2)
        at = record.topic_length_at
        width = 2
        return raw[:at] + (length % 65536).to_bytes(width, "big") + raw[at + width :]

    return change


def reversed_magic(_: Crafted, record: Record) -> bytes:
    at, width = record.field("magic")
    return record.with_bytes(at, record.raw[at : at + width][::-1])


def shorter_topic(_: Crafted, record: Record) -> bytes:
    """The topic's last byte counts as the properties length's first: everything is off by one."""
    return record.with_number("topic_length", record.number("topic_length") - 1)


def host_flag(bit: int) -> Damage:
    """One of the IPv6 flags turned over, the record's layout left as it is."""
    return number("sys_flag", lambda _, record: record.sys_flag ^ bit)


BOTH_V6 = formats.SYS_FLAG_BORN_HOST_V6 | formats.SYS_FLAG_STORE_HOST_V6

#: What no reader can distinguish from a ghost unless its queue shows the gap.
GHOSTLY = ("a08_offset_one_less", "a08_copy_of_an_earlier_segment", "a08_offset_zero")

ANY_RECORD: dict[str, Damage] = {
    "a01_size_zero": number("total_size", 0),
    "a01_first_8_bytes_zero": zeroed(lambda _: 0, lambda _: 8),
    "a01_first_64_bytes_zero": zeroed(lambda _: 0, lambda _: 64),
    "a02_size_minus_one": number("total_size", -1),
    "a02_size_lowest": number("total_size", -(2**31)),
    "a02_size_negated": number("total_size", lambda _, record: -record.size),
    "a03_size_1": number("total_size", 1),
    "a03_size_7": number("total_size", 7),
    "a03_size_8": number("total_size", 8),
    "a03_size_90": number("total_size", 90),
    "a03_size_91": number("total_size", 91),
    "a04_size_highest": number("total_size", 2**31 - 1),
    "a04_size_one_more_than_left": number("total_size", lambda s, r: left(s, r) + 1),
    "a04_size_of_the_rest": number("total_size", left),
    "a04_size_of_two_segments": number("total_size", lambda s, _: 2 * s.segment_size),
    "a05_size_one_more": added("total_size", 1),
    "a05_size_one_less": added("total_size", -1),
    "a05_body_one_more": added("body_length", 1),
    "a05_body_one_less": added("body_length", -1),
    "a05_topic_one_more": added("topic_length", 1),
    "a05_topic_one_less": shorter_topic,
    "a05_properties_one_more": added("properties_length", 1),
    "a05_properties_one_less": added("properties_length", -1),
    "a06_magic_zero": number("magic", 0),
    "a06_magic_reversed": reversed_magic,
    "a06_magic_first_bit": flipped(lambda _: 4, 7),
    "a06_magic_middle_bit": flipped(lambda _: 6, 3),
    "a06_magic_last_bit": flipped(lambda _: 7, 0),
    "a06_magic_of_the_other_version": number(
        "magic",
        lambda _, r: formats.MAGIC_V1 if r.magic == formats.MAGIC_V2 else formats.MAGIC_V2,
    ),
    "a07_marker_size_0": marker(lambda *_: 0),
    "a07_marker_negative": marker(lambda *_: -1),
    "a07_marker_lowest": marker(lambda *_: -(2**31)),
    "a07_marker_8": marker(lambda *_: 8),
    "a07_marker_one_short": marker(lambda s, r: left(s, r) - 1),
    "a07_marker_one_long": marker(lambda s, r: left(s, r) + 1),
    "a07_marker_of_the_record": marker(lambda _, r: r.size),
    "a07_marker_of_a_segment": marker(lambda s, _: s.segment_size),
    "a08_offset_one_more": added("physical_offset", 1),
    "a08_offset_one_less": added("physical_offset", -1),
    "a08_offset_zero": number("physical_offset", 0),
    "a08_offset_negative": number("physical_offset", -1),
    "a08_offset_high_bit": added("physical_offset", 2**40),
    "a08_copy_of_an_earlier_segment": from_another_segment(-1),
    "a08_copy_of_a_later_segment": from_another_segment(1),
    "a09_queue_id_minus_one": number("queue_id", -1),
    "a09_queue_id_lowest": number("queue_id", -(2**31)),
    "a09_queue_offset_minus_one": number("queue_offset", -1),
    "a09_queue_offset_lowest": number("queue_offset", -(2**63)),
    "a11_body_length_minus_one": number("body_length", -1),
    "a11_body_length_lowest": number("body_length", -(2**31)),
    "a12_body_longer_than_the_rest": number("body_length", lambda _, r: r.size),
    "a12_body_one_beyond_the_rest": number(
        "body_length", lambda _, r: r.size - r.body_at - 1 - 2 + 1
    ),
    "a12_body_highest": number("body_length", 2**31 - 1),
    "a12_body_overflows_the_sum": number("body_length", lambda _, r: 2**31 - r.body_at),
    "a14_topic_empty": number("topic_length", 0),
    "a14_topic_past_the_record": number("topic_length", 127),
    "a14_two_byte_topic_ffff": two_byte_topic_length(0xFFFF),
    "a14_two_byte_topic_7fff": two_byte_topic_length(0x7FFF),
    "a15_properties_minus_one": number("properties_length", -1),
    "a15_properties_lowest": number("properties_length", -32768),
    "a15_properties_past_the_record": number("properties_length", 32767),
    "a16_topic_zero": zeroed(lambda r: r.topic_at, lambda r: len(r.topic)),
    "a16_topic_begins_with_nul": zeroed(lambda r: r.topic_at, lambda _: 1),
    "a16_topic_ends_with_nul": zeroed(lambda r: r.properties_length_at - 1, lambda _: 1),
    "a16_topic_and_properties_zero": zeroed(lambda r: r.topic_at, lambda r: r.size),
    "a16_properties_zero": zeroed(lambda r: r.properties_at, lambda r: r.size),
    "a16_last_4_bytes_zero": zeroed(lambda r: r.size - 4, lambda _: 4),
    "a21_born_host_flag": host_flag(formats.SYS_FLAG_BORN_HOST_V6),
    "a21_store_host_flag": host_flag(formats.SYS_FLAG_STORE_HOST_V6),
    "a21_both_host_flags": host_flag(BOTH_V6),
}

WITH_BODY: dict[str, Damage] = {
    "a13_first_bit": flipped(lambda r: r.body_at, 7),
    "a13_middle_bit": flipped(lambda r: r.body_at + r.body_nbytes // 2, 4),
    "a13_last_bit": flipped(lambda r: r.topic_length_at - 1, 0),
    "a13_stored_crc": flipped(lambda _: 8, 0),
    "a13_stored_crc_sign": flipped(lambda _: 8, 7),
}
VERSION_1: dict[str, Damage] = {
    "a14_topic_0x80": number("topic_length", 0x80),
    "a14_topic_0xff": number("topic_length", 0xFF),
}
WIDE: dict[str, Damage] = {
    "a16_sector_of_512": zeroed(lambda r: r.properties_at + 100, lambda _: 512),
    "a16_sector_to_the_end": zeroed(lambda r: r.size - 512, lambda _: 512),
    "a16_first_sector_of_properties": zeroed(lambda r: r.properties_at, lambda _: 512),
    "a16_sector_over_the_topic": zeroed(lambda r: r.topic_at - 1, lambda _: 513),
}
VERY_WIDE: dict[str, Damage] = {
    "a16_page_of_4096": zeroed(lambda r: r.properties_at + 50, lambda _: 4096),
}
IPV6: dict[str, Damage] = {
    "a21_ipv6_laid_out_as_ipv4": host_flag(formats.SYS_FLAG_BORN_HOST_V6),
}

#: name -> (damage, kind of record it is done to: its number modulo 8)
CASES: dict[str, tuple[Damage, int]] = {
    **{name: (damage, 2) for name, damage in ANY_RECORD.items()},
    **{name: (damage, 2) for name, damage in WITH_BODY.items()},
    **{name: (damage, 2) for name, damage in VERSION_1.items()},
    **{name: (damage, 5) for name, damage in WIDE.items()},
    **{name: (damage, 6) for name, damage in VERY_WIDE.items()},
    **{name: (damage, 4) for name, damage in IPV6.items()},
    # Version 2, long topic.
    "a05_v2_topic_one_more": (added("topic_length", 1), 3),
    "a06_v2_magic_of_version_1": (number("magic", formats.MAGIC_V1), 3),
    "a13_v2_body": (WITH_BODY["a13_middle_bit"], 3),
    "a14_v2_topic_empty": (number("topic_length", 0), 3),
    "a14_v2_topic_negative": (number("topic_length", -1), 3),
    "a16_v2_topic_zero": (ANY_RECORD["a16_topic_zero"], 3),
}

ONE_OF_EACH_ROW = {name[:3]: name for name in reversed(CASES)}
