"""The declared layouts against RocketMQ's numbers, NumPy, the C header, real files and the docs."""

from __future__ import annotations

import datetime
import importlib
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import golden_stores
from rocketstore import formats
from support.kernel_bodies import Bodies

ROOT = Path(__file__).resolve().parents[3]
ON_DISK = [layout for layout in formats.LAYOUTS if not layout.native]

#: Positions that RocketMQ's own sources and tools rely on, typed here a second time on purpose.
KNOWN_POSITIONS = {
    ("record_head", "magic"): 4,
    ("record_head", "body_crc"): 8,
    ("record_head", "queue_id"): 12,
    ("record_head", "flag"): 16,
    ("record_head", "queue_offset"): 20,
    ("record_head", "physical_offset"): 28,
    ("record_head", "sys_flag"): 36,
    ("record_head", "born_timestamp"): 40,
    ("cq_unit", "size"): 8,
    ("cq_unit", "tags_code"): 12,
    ("index_header", "end_timestamp"): 8,
    ("index_header", "begin_physical_offset"): 16,
    ("index_header", "hash_slot_count"): 32,
    ("index_header", "index_count"): 36,
    ("index_entry", "physical_offset"): 4,
    ("index_entry", "time_diff"): 12,
    ("index_entry", "previous_index"): 16,
    ("checkpoint", "confirm_physical_offset"): 32,
    ("checkpoint", "logics_physical_offset"): 40,
}
KNOWN_SIZES = {
    "record_head": 48,
    "host_v4": 8,
    "host_v6": 20,
    "blank": 8,
    "batch_item_head": 20,
    "cq_unit": 20,
    "index_header": 40,
    "index_slot": 4,
    "index_entry": 20,
    "checkpoint": 48,
}
#: The same message, typed from a store that RocketMQ itself opened and answered from.
EXAMPLE_RECORD = bytes.fromhex(
    "000000a2 daa320a7 3610a686 00000000 00000000 0000000000000000 0000000000000000 00000000"
    "0000018bcfe56800 0a010203 000011d7 0000018bcfe569f4 0a090807 00002a9f 00000000"
    "0000000000000000 00000005 68656c6c6f 06 546f70696341 003c"
    "4b455953016b3102 54414753015461674102 554e49515f4b455901"
    "3041303130323033314132423138423441414332303030303030304130303037 02"
)


def tool(name: str) -> ModuleType:
    """A module of ``tools/``, imported without changing the import path for other tests."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


example = tool("format_example")


@pytest.mark.parametrize("layout", formats.LAYOUTS, ids=lambda layout: layout.name)
def test_struct_and_dtype_agree(layout: formats.Layout) -> None:
    assert layout.struct.size == layout.dtype.itemsize == layout.nbytes
    offsets = layout.dtype.fields
    assert offsets is not None
    assert {name: value[1] for name, value in offsets.items()} == {
        field.name: at for field, at in layout.placed()
    }
    assert len({field.name for field in layout.fields}) == len(layout.fields)


@pytest.mark.parametrize("layout", formats.LAYOUTS, ids=lambda layout: layout.name)
@given(data=st.data())
def test_struct_and_dtype_decode_alike(layout: formats.Layout, data: st.DataObject) -> None:
    import numpy

    raw = data.draw(st.binary(min_size=layout.nbytes, max_size=layout.nbytes))
    row = numpy.frombuffer(raw, layout.dtype)[0]
    unpacked = layout.struct.unpack(raw)
    for field, value in zip(layout.fields, unpacked, strict=True):
        if field.type[0] == "S":
            # NumPy drops trailing NULs of texts.
            assert row[field.name] == value.rstrip(b"\0")
        else:
            assert int(row[field.name]) == value
    assert layout.struct.pack(*unpacked) == raw


def test_positions_and_sizes_are_rocketmqs() -> None:
    layouts = {layout.name: layout for layout in formats.LAYOUTS}
    assert {key: layouts[key[0]].at(key[1]) for key in KNOWN_POSITIONS} == KNOWN_POSITIONS
    assert {name: layouts[name].nbytes for name in KNOWN_SIZES} == KNOWN_SIZES
    assert formats.RECORD_HEADER_V4_NBYTES == 88
    assert formats.RECORD_MIN_NBYTES == 91
    assert formats.PROPERTY_CRC32_NBYTES == 20
    assert formats.index_file_nbytes(5_000_000, 20_000_000) == 420_000_040


def test_unknown_field_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        formats.RECORD_HEAD.at("nothing")


def test_magics_are_the_stored_words() -> None:
    magics = (formats.MAGIC_V1, formats.MAGIC_V2, formats.BLANK_MAGIC)
    assert [f"{magic & 0xFFFFFFFF:08X}" for magic in magics] == ["DAA320A7", "DAA320AB", "CBD43194"]


def header_numbers() -> dict[str, int]:
    """The integer macros of the generated C header."""
    text = (ROOT / "src" / "_native" / "base" / "rs_formats.h").read_text(encoding="utf-8")
    pattern = r"^#define (RS_\w+) \(?(-?\d+)\)?$"
    return {name: int(value) for name, value in re.findall(pattern, text, re.MULTILINE)}


@pytest.mark.parametrize("layout", ON_DISK, ids=lambda layout: layout.name)
def test_c_header_has_the_positions(layout: formats.Layout) -> None:
    numbers, prefix = header_numbers(), f"RS_{layout.name.upper()}_"
    assert numbers[f"{prefix}NBYTES"] == layout.dtype.itemsize
    for field, at in layout.placed():
        assert numbers[f"{prefix}{field.name.upper()}_AT"] == at


def test_c_header_has_the_constants() -> None:
    numbers = header_numbers()
    for name in formats.SHARED_CONSTANTS:
        assert numbers[f"RS_{name}"] == getattr(formats, name)


@pytest.mark.parametrize(
    "generator", ["gen_formats", "gen_format_pages", "gen_architecture", "gen_config_page"]
)
def test_generated_files_are_current(generator: str) -> None:
    for path, text in tool(generator).outputs().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make gen`"


def test_write_outputs_writes_only_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = tool("gen_formats")
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    target = tmp_path / "made.h"
    assert generator.write_outputs({target: "one\n"}, ["--check"]) == 1
    assert not target.exists()
    assert generator.write_outputs({target: "one\n"}, []) == 0
    assert target.read_text() == "one\n"
    capsys.readouterr()
    assert generator.write_outputs({target: "one\n"}, ["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_example_record_is_what_rocketmq_read() -> None:
    assert example.joined(example.record()) == EXAMPLE_RECORD


def test_example_of_the_other_files_is_what_rocketmq_read() -> None:
    blank = bytes.fromhex("0000015e cbd43194")
    assert example.joined(example.blank()) == blank
    assert example.joined(example.queue_unit()) == bytes.fromhex(
        "0000000000000000 000000a2 000000000027a807"
    )
    index = example.joined(example.index_file())
    assert len(index) == formats.index_file_nbytes(example.HASH_SLOTS, example.INDEX_ENTRIES) == 176
    assert index[0x28:0x38] == bytes.fromhex("00000001 00000002 00000000 00000000")
    assert index[0x4C:0x50] == bytes.fromhex("4d090748")
    assert index[0x60:0x64] == bytes.fromhex("717125c9")


def test_annotated_lines_hold_every_byte() -> None:
    spans = [example.Span(bytes(range(40)), "first"), example.Span(b"x", "second")]
    lines = example.annotated(spans)
    assert [line[:6] for line in lines] == ["0000: ", "0010: ", "0020: ", "0028: "]
    assert bytes.fromhex("".join(line[6:54] for line in lines)) == bytes(range(40)) + b"x"
    assert lines[0].endswith("first")
    assert lines[-1].endswith("second")


def test_kernels_encode_the_example(kernels: Bodies) -> None:
    properties = example.joined(example.properties())
    born, store = (f"{host}:{port}" for host, port in (example.BORN_HOST, example.STORE_HOST))
    encoded = kernels.message.encode_record(
        *(example.TOPIC, example.BODY, 0, 0, 0, 0, 0),
        *(example.BORN_TIMESTAMP, born, example.STORE_TIMESTAMP, store, 0, 0, properties),
    )
    assert encoded == EXAMPLE_RECORD
    for text in (*example.index_keys(), "TagA"):
        assert kernels.message.string_hash_code(text.encode()) == example.hash_code(text)


@pytest.mark.parametrize("name", golden_stores.names("plain-"))
def test_real_logs_and_queues_parse_by_the_layouts(name: str, tmp_path: Path) -> None:
    store = golden_stores.unpack(name, tmp_path)
    log: dict[int, int] = {}
    for segment in sorted((store / formats.COMMIT_LOG_DIR).iterdir()):
        base = formats.file_name_to_offset(segment.name)
        assert base is not None
        log |= record_sizes(segment.read_bytes(), base)
    assert len(log) > 200
    units = 0
    for path in (store / formats.CONSUME_QUEUE_DIR).rglob("0*"):
        if path.is_file():
            for offset, size, _ in formats.CONSUME_QUEUE_UNIT.struct.iter_unpack(path.read_bytes()):
                assert size == 0 or log[offset] == size
                units += size > 0
    assert units > 200


def record_sizes(data: bytes, base: int) -> dict[int, int]:
    """Size by offset of every record in one segment, walked by the layouts alone."""
    names = [field.name for field in formats.RECORD_HEAD.fields]
    found: dict[int, int] = {}
    position = 0
    while position + formats.RECORD_HEAD.nbytes <= len(data):
        values = formats.RECORD_HEAD.struct.unpack_from(data, position)
        head = dict(zip(names, values, strict=True))
        if head["magic"] not in (formats.MAGIC_V1, formats.MAGIC_V2):
            break
        assert head["physical_offset"] == base + position
        check_body(data[position : position + head["total_size"]], head)
        found[base + position] = head["total_size"]
        position += head["total_size"]
    total_size, magic = formats.BLANK.struct.unpack_from(data, position)
    assert (total_size, magic) in ((0, 0), (len(data) - position, formats.BLANK_MAGIC))
    return found


def check_body(record: bytes, head: dict[str, int]) -> None:
    """The body is after the tail and has the stored CRC."""
    at = formats.RECORD_HEAD.nbytes + formats.RECORD_STORED.nbytes + formats.RECORD_TAIL.nbytes
    for bit in (formats.SYS_FLAG_BORN_HOST_V6, formats.SYS_FLAG_STORE_HOST_V6):
        at += (formats.HOST_V6 if head["sys_flag"] & bit else formats.HOST_V4).nbytes
    tail = formats.RECORD_TAIL.struct.unpack_from(record, at - formats.RECORD_TAIL.nbytes)
    body = record[at : at + tail[-1]]
    assert len(body) == tail[-1]
    assert zlib.crc32(body) & 0x7FFFFFFF == head["body_crc"]


@given(st.integers(0, 2**63 - 1))
def test_file_names_round_trip(offset: int) -> None:
    name = formats.offset_to_file_name(offset)
    assert len(name) == 20
    assert formats.file_name_to_offset(name) == offset


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_offsets_without_a_name_are_refused(offset: int) -> None:
    with pytest.raises(ValueError, match=r"outside 0 \.\. 2\*\*63 - 1"):
        formats.offset_to_file_name(offset)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0" * 19,
        "0" * 21,
        "-" + "0" * 19,
        " " + "0" * 19,
        "٠" * 20,
        "9" * 20,
        "0" * 19 + "x",
    ],
)
def test_foreign_names_have_no_offset(name: str) -> None:
    assert formats.file_name_to_offset(name) is None


def test_index_names() -> None:
    name = formats.timestamp_to_index_name(1700000000500, datetime.UTC)
    assert name == "20231114221320500"
    assert formats.is_index_name(name)
    east = datetime.timezone(datetime.timedelta(hours=8))
    assert formats.timestamp_to_index_name(1700000000007, east) == "20231115061320007"
    assert not any(formats.is_index_name(bad) for bad in ("", "1" * 16, "1" * 18, "1" * 16 + "²"))
