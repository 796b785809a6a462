"""Dispatch into the queues that records name, and into ext files: both bodies, unit by unit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketstore import Sql92Filter, formats
from rocketstore.status import KernelStatus, MultiDispatch
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.named_store import NamedStore
from support.reput_store import encode_log

LIGHT = MultiDispatch.LIGHT
ALL_NAMES = MultiDispatch.LIGHT | MultiDispatch.PLAIN
EXT_FILE_NBYTES = 256
EXT_UNIT = formats.CONSUME_QUEUE_EXT_UNIT


ALWAYS = Sql92Filter("TRUE").program


def set_bit_map(store: NamedStore, bit_map: bytes | None) -> None:
    """Give every record of TopicA this bit map."""
    filters = [] if bit_map is None else [(b"TopicA", ALWAYS, bit_map, 0)]
    store.dispatcher.set_filters(len(bit_map or b""), filters)


def multi(names: str, offsets: str, tags: str = "") -> bytes:
    """Properties of a record that names other queues."""
    text = f"INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}"
    return (text + (f"\x02TAGS\x01{tags}" if tags else "")).encode("utf-8", "surrogateescape")


def named(kernels: Bodies, records: list[dict[str, Any]], flags: int = LIGHT) -> NamedStore:
    store = NamedStore(kernels, multi_dispatch=flags, index_enable=False)
    store.dispatch_all(encode_log(kernels, records))
    return store


def test_a_record_goes_into_the_light_queues_it_names(kernels: Bodies) -> None:
    store = named(
        kernels,
        [
            {"queue_id": 3, "properties": multi("%LMQ%a,%LMQ%b", "0,0", "TagA")},
            {"queue_id": 3, "queue_offset": 1, "properties": multi("%LMQ%b", "1")},
        ],
    )
    own = store.units(b"TopicA", 3)
    assert store.units(b"%LMQ%a", 0) == own[:1]
    assert store.units(b"%LMQ%b", 0) == own
    assert own[0][2] == 2598919


@pytest.mark.parametrize(
    ("names", "offsets", "expected"),
    [
        ("%LMQ%a,%LMQ%b", "0", [b"%LMQ%a"]),  # lists of different lengths: RocketMQ drops all
        ("%LMQ%a", "0,0", [b"%LMQ%a"]),
        ("%LMQ%a,%LMQ%b,,", "0,0", [b"%LMQ%a", b"%LMQ%b"]),  # empty items at the end do not count
        (",%LMQ%b", "0,0", [b"%LMQ%b"]),
        ("%LMQ%a,%LMQ%b,%LMQ%c", "0,x,0", [b"%LMQ%a", b"%LMQ%c"]),  # there RocketMQ gives up
        ("%LMQ%a,plain,%LMQ%c", "0,,0", [b"%LMQ%a", b"%LMQ%c"]),
        ("%LMQ%a,plain,%LMQ%c", "0,0,0", [b"%LMQ%a", b"%LMQ%c"]),
        ("%LMQ%a", "-1", []),
        ("%LMQ%a", "9223372036854775808", []),
        ("%LMQ%a", "+0", [b"%LMQ%a"]),
        ("%LMQ%a/b,%LMQ%c", "0,0", [b"%LMQ%c"]),  # A19: no folder can have this name
        ("..,.,%LMQ%c", "0,0,0", [b"%LMQ%c"]),
        ("%LMQ%\x07,%LMQ%c", "0,0", [b"%LMQ%c"]),
        ("%LMQ%\udcff,%LMQ%c", "0,0", [b"%LMQ%c"]),
        ("%LMQ%" + 251 * "x" + ",%LMQ%c", "0,0", [b"%LMQ%c"]),
        ("%LMQ%" + 250 * "x", "0", [b"%LMQ%" + 250 * b"x"]),
        ("%LMQ%a,%LMQ%a", "0,0", [b"%LMQ%a"]),
    ],
)
def test_a19_names_and_offsets_of_every_kind(
    kernels: Bodies, names: str, offsets: str, expected: list[bytes]
) -> None:
    store = named(kernels, [{"properties": multi(names, offsets)}])
    assert sorted(topic for topic, _ in store.all_units()) == sorted([b"TopicA", *expected])
    assert all(len(units) == 1 for units in store.all_units().values())


@pytest.mark.parametrize(
    ("topic", "flags", "goes"),
    [
        ("%RETRY%g", LIGHT, True),
        ("%RETRY%g", LIGHT | MultiDispatch.NOT_OF_SYSTEM, False),
        ("rmq_sys_x", LIGHT | MultiDispatch.NOT_OF_SYSTEM, False),
        ("SCHEDULE_TOPIC_XXXX", LIGHT | MultiDispatch.NOT_OF_SYSTEM, False),
        ("SCHEDULE_TOPIC_XXXXX", LIGHT | MultiDispatch.NOT_OF_SYSTEM, True),
        ("%DLQ%g", LIGHT | MultiDispatch.NOT_OF_SYSTEM, True),
        ("%DLQ%g", LIGHT | MultiDispatch.NOT_OF_DLQ, False),
        ("TopicA", MultiDispatch.PLAIN, False),
        ("TopicA", 0, False),
    ],
)
def test_topics_that_go_nowhere_else(kernels: Bodies, topic: str, flags: int, goes: bool) -> None:
    store = named(kernels, [{"topic": topic, "properties": multi("%LMQ%a", "0")}], flags)
    assert ((b"%LMQ%a", 0) in store.all_units()) == goes


def test_queues_of_other_names_keep_the_records_queue_id(kernels: Bodies) -> None:
    store = named(kernels, [{"queue_id": 5, "properties": multi("Other", "0")}], ALL_NAMES)
    assert store.units(b"Other", 5) == store.units(b"TopicA", 5)


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_what_has_no_unit_of_its_own_has_none_elsewhere(kernels: Bodies, sys_flag: int) -> None:
    """PREPARED and ROLLBACK records take a queue offset in the light queue and leave no unit, so
    later units are before their place until the next opening."""
    store = named(
        kernels,
        [
            {"properties": multi("%LMQ%a", "0")},
            {"sys_flag": sys_flag, "properties": multi("%LMQ%a", "1")},
            {"queue_offset": 1, "properties": multi("%LMQ%a", "2")},
            {"queue_offset": 2, "properties": multi("%LMQ%a", "3")},
        ],
    )
    assert store.units(b"%LMQ%a", 0) == store.units(b"TopicA", 0)
    assert store.statuses.count(KernelStatus.QUEUE_GAP) == 1


@pytest.mark.parametrize("offsets", [("0", "0"), ("1", "0"), ("0", "7")])
def test_a10_numbers_of_a_light_queue_that_repeat_or_jump(
    kernels: Bodies, offsets: tuple[str, str]
) -> None:
    """The place of a unit is never given to another one."""
    store = named(
        kernels,
        [
            {"queue_offset": number, "properties": multi("%LMQ%a", text)}
            for number, text in enumerate(offsets)
        ],
    )
    units = store.units(b"%LMQ%a", 0)
    own = store.units(b"TopicA", 0)
    if offsets == ("0", "7"):
        assert units == own
    else:
        assert units[-1] == own[0]
        assert store.dispatcher.repeated_units == 1


def test_dispatching_again_adds_nothing(kernels: Bodies) -> None:
    records = [
        {"queue_offset": number, "properties": multi("%LMQ%a,%LMQ%b", f"{number},{number}")}
        for number in range(20)
    ]
    store = named(kernels, records)
    before = store.all_units()
    assert store.dispatcher.repeated_units == 0
    store.dispatch_all(encode_log(kernels, records))
    assert store.all_units() == before
    assert store.dispatcher.repeated_units == 60


# --- ext files ------------------------------------------------------------------------------------


def ext_units(store: NamedStore, handle: int) -> list[tuple[int, tuple[int, int, int, int]]]:
    """(offset, fields) of a queue's ext units, read as RocketMQ reads them."""
    found = []
    for (owner, start), file in sorted(store.ext_files.items()):
        position = 0
        while owner == handle and position + EXT_UNIT.nbytes <= len(file):
            fields = EXT_UNIT.struct.unpack_from(file, position)
            if fields[0] <= 0:
                break
            found.append((start + position, fields))
            position += fields[0]
    return found


def test_units_carry_addresses_of_their_ext_units(kernels: Bodies) -> None:
    store = NamedStore(kernels, ext_file_nbytes=EXT_FILE_NBYTES, index_enable=False)
    records = [
        {"queue_offset": number, "tags": f"Tag{number}", "store_timestamp": 1000 + number}
        for number in range(30)
    ]
    store.dispatch_all(encode_log(kernels, records))
    found = ext_units(store, 0)
    addresses = [code for _, _, code in store.units(b"TopicA", 0)]
    assert addresses == [formats.EXT_ADDRESS_BASE + offset for offset, _ in found]
    assert [fields[2] for _, fields in found] == list(range(1000, 1030))
    assert found[0][1][0] == EXT_UNIT.nbytes
    # A file takes twelve units; then the end mark stands where the thirteenth had no room.
    assert found[12][0] == EXT_FILE_NBYTES
    assert store.ext_files[0, 0][240:242] == b"\xff\xff"


@pytest.mark.parametrize("nbytes", [0, 1, 14, 232, 233, 40_000])
def test_bit_maps(kernels: Bodies, nbytes: int) -> None:
    """A unit that no file takes leaves the plain tags code in the queue."""
    store = NamedStore(kernels, ext_file_nbytes=EXT_FILE_NBYTES, index_enable=False)
    set_bit_map(store, b"\xa5" * nbytes)
    store.dispatch_all(encode_log(kernels, [{"tags": "TagA"}, {"queue_offset": 1}]))
    codes = [code for _, _, code in store.units(b"TopicA", 0)]
    if nbytes > 232:
        assert codes == [2598919, 0]
        assert store.ext_files == {}
    else:
        assert codes[0] == formats.EXT_ADDRESS_BASE
        assert store.ext_files[0, 0][20 : 20 + nbytes] == b"\xa5" * nbytes


def test_light_units_carry_plain_tags_codes(kernels: Bodies) -> None:
    store = NamedStore(
        kernels, ext_file_nbytes=EXT_FILE_NBYTES, multi_dispatch=LIGHT, index_enable=False
    )
    store.dispatch_all(encode_log(kernels, [{"properties": multi("%LMQ%a", "0", "TagA")}]))
    assert store.units(b"%LMQ%a", 0)[0][2] == 2598919
    assert store.units(b"TopicA", 0)[0][2] == formats.EXT_ADDRESS_BASE


def test_comparing_mends_what_is_wrong_and_keeps_bit_maps(kernels: Bodies) -> None:
    store = NamedStore(kernels, ext_file_nbytes=EXT_FILE_NBYTES, index_enable=False)
    log = encode_log(kernels, [{"queue_offset": number, "tags": "t"} for number in range(9)])
    set_bit_map(store, b"bits")
    store.dispatch_all(log)
    queue, ext = dict(store.queue_files), dict(store.ext_files)
    whole = store.everything()
    again = NamedStore(kernels, ext_file_nbytes=EXT_FILE_NBYTES, index_enable=False)
    again.queue_files = {key: bytearray(file) for key, file in queue.items()}
    again.ext_files = {key: bytearray(file) for key, file in ext.items()}
    again.queue_files[b"TopicA", 0, 0][60:100] = bytes(40)
    again.dispatcher.set_compare(True)
    again.dispatch_all(log)
    assert again.everything()["queue_files"] == whole["queue_files"]
    assert again.everything()["ext"] == whole["ext"]
    assert again.dispatcher.mended_units == 2


def test_a_queue_without_a_file_lets_go_of_its_ext_file(kernels: Bodies) -> None:
    dispatcher = kernels.reput.Dispatcher(ext_file_nbytes=256)
    handle = dispatcher.set_queue(b"T", 0, None, 0, 0, -1)
    file = bytearray(256)
    dispatcher.set_ext(handle, file, 256, 300)
    dispatcher.set_queue(b"T", 0, bytearray(40), 0, 0, -1)
    with pytest.raises(BufferError):
        file.append(0)
    dispatcher.set_queue(b"T", 0, None, 0, 0, -1)
    file.append(0)
    assert dispatcher.ext_offset(handle) == 300
    dispatcher.close()


def test_misuse(kernels: Bodies) -> None:
    plain = kernels.reput.Dispatcher()
    handle = plain.set_queue(b"T", 0, None, 0, 0, -1)
    assert plain.ext_offset(handle) == -1
    with pytest.raises(ValueError, match="no ext files"):
        plain.set_ext(handle, bytearray(256), 0, 0)
    for wrong in (-1, 16):
        with pytest.raises(ValueError, match="multi_dispatch"):
            kernels.reput.Dispatcher(multi_dispatch=wrong)
    ext = kernels.reput.Dispatcher(ext_file_nbytes=256)
    handle = ext.set_queue(b"T", 0, None, 0, 0, -1)
    for place in (-1, 257):
        with pytest.raises(ValueError, match="offset"):
            ext.set_ext(handle, bytearray(256), 0, place)
    for method in (ext.set_shifted, ext.ext_offset):
        with pytest.raises(ValueError, match="no queue has the handle 9"):
            method(9)
    ext.close()


# --- both bodies ----------------------------------------------------------------------------------

NAME_CHOICES = ("%LMQ%a", "%LMQ%b", "%LMQ%ü", "Plain", "", "a/b", "%LMQ%", "..")
OFFSET_CHOICES = ("0", "1", "2", "", "x", "-3", "12345678901234567890")


def random_records(pick: random.Random) -> list[dict[str, Any]]:
    following: dict[tuple[str, int], int] = {}
    records = []
    for number in range(pick.randrange(1, 40)):
        topic, queue_id = pick.choice(("TopicA", "%RETRY%g", "%DLQ%g", "%LMQ%a")), pick.randrange(2)
        sys_flag = pick.choice((0, 0, 0, 4, 8, 12))
        names = [pick.choice(NAME_CHOICES) for _ in range(pick.randrange(4))]
        offsets = [
            str(number // 2) if pick.random() < 0.7 else pick.choice(OFFSET_CHOICES) for _ in names
        ]
        if pick.random() < 0.1:
            offsets.append("1")
        key = (topic, queue_id)
        fields: dict[str, Any] = {"tags": f"tag{number % 3}"}
        if names and pick.random() < 0.8:
            fields = {"properties": multi(",".join(names), ",".join(offsets), "x")}
        records.append(
            {
                "topic": topic,
                "queue_id": queue_id,
                "queue_offset": 0 if sys_flag & 4 else following.get(key, 0),
                "sys_flag": sys_flag,
                "store_timestamp": 10_000 + number,
                "version": pick.choice((1, 2)),
                "host": pick.choice(("127.0.0.1:10911", "[2001:db8::1]:1234")),
                **fields,
            }
        )
        if not sys_flag & 4:
            following[key] = following.get(key, 0) + 1
    return records


@pytest.mark.parametrize("seed", range(60))
def test_both_bodies_leave_the_same_bytes(seed: int) -> None:
    pick = random.Random(seed)
    records, flags = random_records(pick), pick.randrange(16)
    ext = pick.choice((0, 24, EXT_FILE_NBYTES))
    bit_map = pick.choice((None, b"", b"\x01\x02", bytes(100)))
    damage = [(pick.random(), pick.randrange(300), pick.randrange(256)) for _ in range(6)]
    outcomes = []
    for body in (NATIVE, REFERENCE):
        options = {"multi_dispatch": flags, "ext_file_nbytes": ext, "index_tags": False}
        store = NamedStore(body, **options)
        log = encode_log(body, records)
        set_bit_map(store, bit_map)
        store.dispatch_all(log)
        again = NamedStore(body, **options)
        again.queue_files = {key: bytearray(file) for key, file in store.queue_files.items()}
        again.ext_files = {key: bytearray(file) for key, file in store.ext_files.items()}
        for chance, at, value in damage:
            files = [*again.queue_files.values(), *again.ext_files.values()]
            if files:
                file = files[int(chance * len(files))]
                file[at % len(file)] = value
        again.dispatcher.set_compare(True)
        again.dispatch_all(log)
        outcomes.append((log, store.everything(), again.everything()))
    assert outcomes[0] == outcomes[1], f"seed {seed}"
