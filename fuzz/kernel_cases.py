"""The cases of the kernels' fuzzer: changed bytes, and every kernel that reads such bytes.

A case depends only on its seed. It calls the native body, which may be built with sanitizers, and
compares the result with the reference body's if ``Runner.compare`` is true.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import zlib
from array import array
from collections.abc import Callable
from random import Random
from typing import Any

import batch_cases
import filter_cases
import kernel_seeds
import pass_cases
import stage_cases
from kernel_seeds import exact, load, mutate, mutate_fields, number

from rocketstore import formats
from rocketstore.status import KernelStatus, RecordStatus

load()
from support.kernel_bodies import Bodies  # noqa: E402 - load() makes the tests' helpers importable
from support.reput_store import NEEDS_QUEUE, MemoryStore  # noqa: E402

UNIT = formats.CONSUME_QUEUE_UNIT.nbytes
BATCH_UNIT = formats.BATCH_QUEUE_UNIT.nbytes
ROW = formats.PARSED_RECORD.nbytes
SELECTED = formats.SELECTED_MESSAGE.nbytes
_DOCUMENTED = (ValueError, OSError, OverflowError, BufferError)
_MOST_FILLERS = 256
EXT_NBYTES = 400


class FindingError(Exception):
    """A broken promise; the text describes it."""


class Runner:
    """Calls kernels and counts the calls.

    Parameters
    ----------
    sanitized : bool
        Buffers of the native body are allocated with exactly their length.
    """

    def __init__(self, sanitized: bool = False) -> None:
        self.sanitized = sanitized
        self.compare = True
        self.calls = 0
        self.compared = 0
        self.native = Bodies("native")
        self.reference = Bodies("reference")

    def buffer(self, body: Bodies, content: bytes | bytearray) -> Any:
        """Return a writable copy for ``body``."""
        return exact(content) if self.sanitized and body is self.native else bytearray(content)

    def call(
        self, module: str, function: str, *arguments: Any, keep: Callable[[Any], Any] | None = None
    ) -> Any:
        """Call the kernel with copies of the bytearrays and arrays; return result and buffers.

        ``keep`` turns (result, buffers after the call) into the value in which the bodies must
        agree.
        """

        def ask(body: Bodies) -> tuple[Any, list[bytes]]:
            copies = [self._copy(body, argument) for argument in arguments]
            result = getattr(getattr(body, module), function)(*copies)
            left = [bytes(c) for c in copies if isinstance(c, bytearray | memoryview | array)]
            return result, left

        return self.both(f"{module}.{function}", ask, keep or (lambda outcome: outcome))

    def _copy(self, body: Bodies, argument: Any) -> Any:
        if isinstance(argument, bytearray):
            return self.buffer(body, argument)
        return array(argument.typecode, argument) if isinstance(argument, array) else argument

    def both(
        self,
        name: str,
        ask: Callable[[Bodies], Any],
        keep: Callable[[Any], Any] = lambda outcome: outcome,
    ) -> Any:
        """Call the native body, and the reference body if ``compare`` is true; they must agree."""
        self.calls += 1
        native = _outcome(name, ask, self.native)
        if self.compare:
            self.compared += 1
            reference = _outcome(name, ask, self.reference)
            shown = [(k, keep(o) if k == "returned" else o) for k, o in (native, reference)]
            if shown[0] != shown[1]:
                raise FindingError(
                    f"{name}: native {shown[0]!r:.2000}, reference {shown[1]!r:.2000}"
                )
        return native[1] if native[0] == "returned" else None


def _outcome(name: str, ask: Callable[[Bodies], Any], body: Bodies) -> tuple[str, Any]:
    try:
        return "returned", ask(body)
    except _DOCUMENTED as error:
        return "raised", (type(error).__name__, str(error))
    except Exception as error:
        raise FindingError(f"{name} of the {body.name} body raised {error!r}") from error


# --- log records --------------------------------------------------------------------------------


def changed_log(random: Random) -> tuple[int, bytes]:
    """Return the offset of the first byte, and changed records, one after another."""
    records = load().records
    at = random.randrange(len(records))
    some = records[at : at + random.randint(1, 4)]
    base = some[0][0]
    parts, offset = [], base
    for _, record in some:
        changed = mutate(random, record, 2)
        # Otherwise nearly every change fails the first check.
        if random.random() < 0.9:
            changed = kernel_seeds.rebase(changed, offset)
        if random.random() < 0.6:
            changed = _with_size_and_crc(changed)
        parts.append(changed)
        offset += len(changed)
    if random.random() < 0.2:
        parts.insert(0, random.randbytes(random.randint(1, 64)))
        base -= len(parts[0]) if random.random() < 0.8 else 0
    if random.random() < 0.3:
        parts.append(bytes(random.randint(1, 300)))
    return (base if random.random() < 0.95 else number(random) >> 1), b"".join(parts)


def _with_size_and_crc(record: bytes) -> bytes:
    """Return the record with the right size, and the right CRC if it has a body."""
    head = formats.RECORD_HEAD
    body_at = formats.RECORD_HEADER_V4_NBYTES
    if len(record) < body_at:
        return record
    sys_flag = int.from_bytes(record[head.at("sys_flag") : head.at("sys_flag") + 4], "big")
    body_at += 12 * ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1))
    nbytes = int.from_bytes(record[body_at - 4 : body_at], "big")
    changed = bytearray(record)
    changed[:4] = len(record).to_bytes(4, "big")
    if body_at + nbytes <= len(record):
        crc = zlib.crc32(record[body_at : body_at + nbytes]) & 0x7FFFFFFF
        crc_at = head.at("body_crc")
        changed[crc_at : crc_at + 4] = crc.to_bytes(4, "big")
    return bytes(changed)


def some_range(random: Random, nbytes: int, step: int = 1, later: float = 0.4) -> tuple[int, int]:
    """Return a range, usually a valid one of a buffer of ``nbytes``.

    ``later`` is the probability that it does not start at the buffer's beginning.
    """
    if random.random() < 0.03:
        return number(random), number(random)
    if random.random() < 0.05:
        # Past the end by at most a row, where a check that is off by one still reads.
        position = random.choice((0, nbytes - nbytes % step, nbytes + step))
        return position, nbytes + random.choice((1, step - 1, step))
    position = 0 if random.random() >= later else random.randint(0, nbytes // step) * step
    stop = nbytes if random.random() < 0.7 else random.randint(position, max(position, nbytes))
    return position, stop


def record(random: Random, runner: Runner) -> None:
    """Check, scan and find records, and read them through an object."""
    base, content = changed_log(random)
    data = bytearray(content)
    position, stop = some_range(random, len(data), later=0.1)
    end = base + len(data) + random.choice((0, 0, 0, 8, 4096)) - random.choice((0, 0, 0, 1, 50))
    flags = random.randrange(32)
    place = (data, position, stop, base, end)
    runner.call("message", "check_record", *place, flags)
    out = bytearray(ROW * random.randint(0, 6))
    delays = random.choice(([], [1000, 5000], [0, -5, 2**62]))
    runner.call("message", "scan_records", *place, flags, out, delays)
    runner.call("message", "find_record", *place)
    runner.both("StoredMessage", lambda body: _object(runner, body, data, position, base, end))


_ATTRIBUTES = (
    *("topic", "body", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host"),
    *("store_host", "reconsume_times", "prepared_transaction_offset", "properties", "tags"),
    *("keys", "unique_key", "delay_level", "queue_offset", "physical_offset", "store_timestamp"),
    *("body_crc", "store_size", "magic_code", "msg_id", "properties_bytes"),
)


def _object(
    runner: Runner, body: Bodies, data: bytearray, position: int, base: int, end: int
) -> list[Any]:
    message = body.message.StoredMessage(runner.buffer(body, data), position, base, end)
    copy = message.detach()
    shown = [getattr(message, name) for name in _ATTRIBUTES]
    shown += [bytes(message.raw), bytes(message.body_view), repr(message), message == copy]
    return [*shown, [getattr(copy, name) for name in _ATTRIBUTES] == shown[: len(_ATTRIBUTES)]]


def text(random: Random, runner: Runner) -> None:
    """Call the kernels of plain bytes: properties, hashes, hosts."""
    _, content = random.choice(load().records)
    start = random.randrange(len(content))
    data = bytearray(mutate(random, content[start:], 6))
    if random.random() < 0.4:
        parts = (b"TAGS", b"\x01", b"\x02", b"KEYS", b"a", b"", b"\xed\xa0\x80", b"\xf0\x9f\x98")
        data = bytearray(b"".join(random.choices(parts, k=random.randint(0, 12))))
    properties = runner.call("message", "parse_properties", data)
    if properties is not None:
        trailing = random.random() < 0.5
        runner.call("message", "encode_properties", properties[0], trailing)
    runner.call("message", "string_hash_code", data)
    runner.call("message", "crc32", data, random.getrandbits(32))
    runner.call("index_file", "key_hash", data)
    host = data[: random.choice((8, 20, random.randint(0, 24)))]
    runner.call("message", "format_host", host)
    runner.call("message", "message_id", host, number(random))
    written = bytearray(random.choice((b"10.0.0.1:10911", b"[2001:db8::1]:65535", b"[::1]:0")))
    written = written if random.random() < 0.3 else bytearray(mutate(random, written, 2))
    runner.call("message", "parse_host", written.decode("utf-8", "replace"))


# --- queues -------------------------------------------------------------------------------------


def _columns(random: Random, units: bytes) -> array[int]:
    """Draw some tags codes, most of them from the units."""
    codes = [code for _, _, code in formats.CONSUME_QUEUE_UNIT.struct.iter_unpack(units[:200])]
    some = random.choices(codes or [0], k=random.randint(0, 6))
    return array("q", [code if random.random() < 0.8 else number(random) for code in some])


def queue(random: Random, runner: Runner) -> None:
    """Read units, and the records that they point to."""
    found, logs = random.choice(load().queues)
    raw = found.units[: UNIT * random.randint(1, 64)]
    raw = raw if random.random() < 0.3 else mutate_fields(random, raw, UNIT)
    whole = len(raw) - len(raw) % UNIT
    data = bytearray(raw[: whole + random.choice((0, 0, 0, 7))])
    position, stop = some_range(random, len(data), UNIT)
    at = int.from_bytes(found.units[:8], "big")
    near = [(start, content) for start, content in logs if start <= at < start + len(content)]
    base, log = random.choice(near if near and random.random() < 0.8 else logs)
    log_end = random.choice((base + len(log), number(random), 2**63 - 1))
    last_end = random.choice((-1, 0, number(random)))
    runner.call("consume_queue", "scan_units", data, position, stop, last_end, log_end)
    runner.call("consume_queue", "find_unit", data, position, stop, number(random))
    rows = random.randint(0, 70)
    columns = (array("q", [0] * rows), array("i", [0] * rows), array("q", [0] * rows))
    runner.call("consume_queue", "read_units", data, position, stop, *columns)
    codes = _columns(random, bytes(data[:whole]))
    room = array("q", [0] * random.choice((64, 64, rows)))
    runner.call("consume_queue", "filter_units", data, position, stop, codes, room, keep=_matches)
    if random.random() < 0.1:
        runner.call("consume_queue", "fill_units", data, position, stop)
        runner.call("consume_queue", "put_units", data, position, *columns)
    changed = log if random.random() < 0.5 else mutate(random, log[:16384], 6)
    log_stop = random.choice((len(changed), len(changed), random.randint(0, len(changed))))
    wanted = codes if random.random() < 0.3 else None
    queue_offset = found.first_index + position // UNIT
    some = (2**31 - 1, 2**31 - 1, 32, 32, 500, 1, 0, number(random) >> 8)
    limits = random.choices(some, k=6)
    chosen = None
    if random.random() < 0.5:
        chosen = filter_cases.CountedFilter(filter_cases.record_program(random))
    runner.call(
        *("consume_queue", "select_messages", data, position, stop),
        *(queue_offset, bytearray(changed), log_stop, base),
        *(base + len(log), random.choice((0, 0, base + 500)), random.choice((found.topic, b""))),
        *(
            found.queue_id,
            wanted,
            chosen,
            limits[0],
            limits[1] * 100,
            random.choice((0, base + 999)),
        ),
        *(limits[2], limits[3] * 100, random.choice((0, limits[4])), random.choice((0, limits[5]))),
        *(random.randrange(8), bytearray(SELECTED * random.randint(0, 40))),
    )


def _matches(outcome: tuple[int, list[bytes]]) -> Any:
    """Return the part of filter_units' last buffer, its array, that is defined."""
    count, left = outcome
    return count, left[:-1], left[-1][: 8 * count]


def batch(random: Random, runner: Runner) -> None:
    """Read and put units of BatchConsumeQueue."""
    file = random.choice(load().batch_files)
    raw = mutate_fields(random, file[: BATCH_UNIT * random.randint(1, 16)], BATCH_UNIT)
    data = bytearray(raw + bytes(random.choice((0, 0, 5))))
    position, stop = some_range(random, len(data), BATCH_UNIT)
    runner.call("batch_consume_queue", "read_unit", data, position)
    ends = (random.choice((-1, 0, number(random))), random.choice((0, number(random))))
    log_end = random.choice((2**63 - 1, number(random)))
    runner.call("batch_consume_queue", "scan_units", data, position, stop, *ends, log_end)
    field_at = random.choice((*range(0, 46, 4), number(random)))
    runner.call(
        "batch_consume_queue", "search_units", data, position, stop, field_at, number(random)
    )
    if random.random() < 0.2:
        values = [number(random) for _ in range(6)]
        runner.call("batch_consume_queue", "put_unit", data, position, *values)


# --- index files --------------------------------------------------------------------------------


def index(random: Random, runner: Runner) -> None:
    """Read, check, rebuild and extend index files."""
    slots, entries, file = random.choice(load().index_files)
    head = formats.INDEX_HEADER.nbytes
    slot, entry = formats.INDEX_SLOT.nbytes, formats.INDEX_ENTRY.nbytes
    count = max(1, int.from_bytes(file[head - 4 : head], "big"))
    if random.random() < 0.8:
        # Keep only the used part: changes in zeros rarely find anything.
        entries = min(entries, count + random.randint(0, 3))
        file = file[: formats.index_file_nbytes(slots, entries)]
    data = bytearray(mutate_fields(random, file, entry, head + slot * slots))
    if random.random() < 0.2:
        data[:head] = mutate_fields(random, bytes(data[:head]), 8)
    if random.random() < 0.3:
        first = bytes(data[head : head + slot * slots])
        data[head : head + slot * slots] = mutate_fields(random, first, 8)
    if random.random() < 0.1:
        del data[random.randrange(len(data)) :]
    if random.random() < 0.1:
        slots, entries = (random.choice((n, 1, 0, number(random))) for n in (slots, entries))
    _ask_index(random, runner, data, slots, entries)


def _ask_index(random: Random, runner: Runner, data: bytearray, slots: int, entries: int) -> None:
    shape = (data, slots, entries)
    runner.call("index_file", "read_header", data)
    key = random.choice(load().keys if random.random() < 0.8 else [b"", b"a", random.randbytes(5)])
    times = [0, 2**62] if random.random() < 0.6 else sorted((number(random), number(random)))
    most = random.choice((1, 32, 2**31 - 1, 0))
    runner.call("index_file", "select_offsets", *shape, key, most, *times)
    runner.call("index_file", "walk_key", *shape, key, *times)
    hashes = array("i", [n % 2**31 for n in _hashes(random, data)])
    room = random.choice((0, 1, 7, 200))
    outs = (array("q", [0] * room), array("q", [0] * room))
    start = random.choice((0, 0, 1, len(hashes)))
    runner.call("index_file", "lookup", *shape, hashes, *times, *outs, start, keep=_hits)
    log_end = random.choice((2**63 - 1, 10**6, number(random)))
    good = runner.call("index_file", "check_entries", *shape, log_end)
    runner.call("index_file", "contradictions", *shape)
    wanted = good[0][0] if good and random.random() < 0.7 else random.randint(-1, 300)
    runner.call("index_file", "rebuild", *shape, wanted, (number(random), number(random)))
    runner.call("index_file", "put_key", *shape, key, number(random), number(random))
    columns = (array("q", [number(random) for _ in hashes]) for _ in range(2))
    runner.call("index_file", "put_hashes", *shape, hashes, *columns)
    if random.random() < 0.1:
        runner.call("index_file", "init_header", data, number(random), number(random))


def _hashes(random: Random, data: bytearray) -> list[int]:
    """Return numbers from random places of the file, aligned to four bytes."""
    if len(data) < 8:
        return [number(random)]
    places = [random.randrange(0, len(data) - 4, 4) for _ in range(random.randint(0, 8))]
    return [int.from_bytes(data[at : at + 4], "big") for at in places]


def _hits(outcome: tuple[tuple[int, int, int], list[bytes]]) -> Any:
    """Return the part of lookup's last two buffers, its arrays, that is defined."""
    result, left = outcome
    return result, left[:-2], [part[: 8 * result[0]] for part in left[-2:]]


# --- dispatch -----------------------------------------------------------------------------------


class _TooFarError(Exception):
    """A queue offset so large that a test must not pre-fill up to it."""


class _Store(MemoryStore):
    """A store whose files have exact lengths, and that does not pre-fill without end."""

    def __init__(self, runner: Runner, body: Bodies, **options: Any) -> None:
        super().__init__(body, slots=20, entries=30, **options)
        self._runner = runner
        self.ext_files: dict[tuple[int, int], Any] = {}

    def serve_ext(self) -> None:
        """Provide the ext file that the stalled queue needs."""
        topic, queue_id, _ = self.dispatcher.stalled
        handle = self.dispatcher.handle(topic, queue_id)
        offset = max(self.dispatcher.ext_offset(handle), 0)
        start = offset - offset % EXT_NBYTES
        if (handle, start) not in self.ext_files:
            self.ext_files[handle, start] = self._runner.buffer(self.kernels, bytes(EXT_NBYTES))
        self.dispatcher.set_ext(handle, self.ext_files[handle, start], start, offset)

    def serve_queue(self, status: int) -> None:
        topic, queue_id, queue_offset = self.dispatcher.stalled
        handle = self.dispatcher.handle(topic, queue_id)
        light = topic.startswith(b"%LMQ%") and status == KernelStatus.QUEUE_GAP
        if light and self.dispatcher.next_index(handle) > 0:
            self.dispatcher.set_shifted(handle)
            return
        present = self.dispatcher.next_index(handle) if handle >= 0 else 0
        if present and queue_offset - present > _MOST_FILLERS:
            raise _TooFarError
        super().serve_queue(status)

    def _queue_file(self, topic: bytes, queue_id: int, index: int) -> tuple[int, Any]:
        first = index - index % self.units_per_file
        key = (topic, queue_id, first)
        if key not in self.queue_files:
            empty = bytes(self.units_per_file * UNIT)
            self.queue_files[key] = self._runner.buffer(self.kernels, empty)
        return first, self.queue_files[key]


def dispatch(random: Random, runner: Runner) -> None:
    """Dispatch a log of changed records to queues, ext files and index files."""
    base, content = changed_log(random)
    position, stop = some_range(random, len(content), later=0.1)
    most = random.choice((1, 3, 4096))
    options = {
        "index_tags": random.random() < 0.5,
        "index_enable": random.random() < 0.8,
        "multi_dispatch": random.randrange(16),
        "delay_ms": random.choice(([], [1000, 5000])),
        "ext_file_nbytes": random.choice((0, 0, EXT_NBYTES)),
    }
    compares = random.random() < 0.3
    filters = filter_cases.group_filters(random, 9)

    def ask(body: Bodies) -> dict[str, Any]:
        store = _Store(runner, body, **options)
        store.dispatcher.set_filters(9, filters)
        log = runner.buffer(body, content)
        end: Any = None
        for _ in range(2 if compares else 1):
            end = _dispatch(store, log, base, position, stop, most)
            store.dispatcher.set_compare(compares)
        state = {**store.state(), "end": end}
        state["ext_files"] = {key: bytes(file) for key, file in store.ext_files.items()}
        store.dispatcher.close()
        return state

    runner.both("Dispatcher.dispatch", ask)


def _dispatch(
    store: _Store, log: Any, base: int, position: int, stop: int, most: int
) -> tuple[int, int] | str:
    """Dispatch, providing ext files on request, until it ends."""
    try:
        for _ in range(100):
            end = store.dispatch(log, base, position=position, stop=stop, max_count=most)
            position = end[0]
            if end[1] != KernelStatus.NEED_EXT:
                return end
            store.serve_ext()
    except _TooFarError:
        return "too far"
    return "no end"


# --- truncated mappings -------------------------------------------------------------------------


def guard(random: Random, runner: Runner) -> None:
    """Truncate a mapped file while kernels read it; only the native body survives that."""
    page = os.sysconf("SC_PAGE_SIZE")
    index_file = random.choice(load().index_files)[2]
    units = random.choice(load().queues)[0].units
    base, log = random.choice(load().logs)
    content = random.choice((index_file, units, log)).ljust(3 * page, b"\1")[: 8 * page]
    native = runner.native
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        mapping = native.mapping.Mapping(file.fileno(), len(content), True)
        file.truncate(random.choice((0, page, 2 * page, 2 * page + 77)))
        calls: list[Callable[[], Any]] = [
            lambda: native.message.check_record(mapping, 0, len(content), base, 2**31, 1),
            lambda: native.message.scan_records(
                mapping, 0, len(content), base, 2**31, 17, bytearray(ROW * 9)
            ),
            lambda: native.message.find_record(mapping, 0, len(content), base, 2**31),
            lambda: native.consume_queue.scan_units(mapping, 0, len(content), -1, 2**62),
            lambda: native.consume_queue.find_unit(mapping, 0, len(content), 2**40),
            lambda: native.consume_queue.fill_units(mapping, 0, len(content)),
            lambda: native.batch_consume_queue.scan_units(mapping, 0, len(content), -1, 0, 2**62),
            lambda: native.batch_consume_queue.search_units(mapping, 0, len(content), 0, 2**40),
            lambda: native.index_file.read_header(mapping),
            lambda: native.index_file.check_entries(mapping, 50, 200, 2**62),
            lambda: native.index_file.contradictions(mapping, 50, 200),
            lambda: native.index_file.walk_key(mapping, 50, 200, b"TopicA#k", 0, 2**62),
            lambda: native.index_file.put_key(mapping, 50, 200, b"TopicA#k", 5, 5),
            lambda: native.index_file.rebuild(mapping, 50, 200, 3, (1, 2)),
            lambda: native.message.crc32(mapping),
            lambda: native.message.string_hash_code(mapping),
            lambda: _attributes_of(native, mapping, base),
            lambda: _dispatched(native, mapping, len(content), base),
            lambda: batch_cases.truncate(random, native, mapping, len(content)),
        ]
        random.shuffle(calls)
        for call in calls:
            runner.calls += 1
            _outcome("a kernel over a truncated file", lambda _, call=call: call(), native)
        mapping.close()


def _attributes_of(body: Bodies, mapping: Any, base: int) -> None:
    message = body.message.StoredMessage(mapping, 0, base, 2**31)
    for name in _ATTRIBUTES:
        getattr(message, name)


def _dispatched(body: Bodies, mapping: Any, nbytes: int, base: int) -> None:
    store = MemoryStore(body)
    status = store.dispatch(mapping, base, stop=nbytes, segment_end=2**31)[1]
    store.dispatcher.close()
    if status not in {*RecordStatus, *KernelStatus, *NEEDS_QUEUE}:
        raise FindingError(f"dispatch of a truncated file returns {status}")


def targets() -> dict[str, Callable[[Random, Runner], None]]:
    """Return all kinds of cases by name, including those of the Python readers."""
    kernels = (record, text, queue, batch, index, dispatch, guard)
    readers = importlib.import_module("reader_cases").CASES
    return {
        **{case.__name__: case for case in kernels},
        **batch_cases.CASES,
        **filter_cases.CASES,
        **pass_cases.CASES,
        **stage_cases.CASES,
        **readers,
    }
