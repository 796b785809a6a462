"""A store with timer messages, and the files that a broker makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import rocketstore
from rocketstore import StoredMessage, formats, kernels
from rocketstore.timer.report import TimerReport

NOW = 1_700_000_000_500
#: Slots ahead that the wheel is used for.
ROLL_WINDOW_SLOTS = 172_800
BLANK_LEAST_NBYTES = 16


class TimerFiles:
    """Wheel, log and checkpoint below ``root``; slots and units can be changed before ``write``."""

    def __init__(self, root: Path, precision_ms: int = 1000, segment_nbytes: int = 5200) -> None:
        self.root = root
        self.precision_ms = precision_ms
        self.segment_nbytes = segment_nbytes
        self.log = bytearray()
        #: Time divided by the precision -> [first position, last position, count].
        self.slots: dict[int, list[int]] = {}
        self.read_time = 0
        self.queue_offset = 0

    def enqueue(self, record: StoredMessage, write_time: int) -> int:
        """Append the unit of a record and link it; return its position."""
        out = int(record.properties["TIMER_OUT_MS"])
        write_time = write_time // self.precision_ms * self.precision_ms
        window = ROLL_WINDOW_SLOTS * self.precision_ms
        bits = formats.TIMER_UNIT_DEFAULT
        if out - write_time >= window:
            bits |= formats.TIMER_UNIT_ROLL
            is_near = out - write_time - window < ROLL_WINDOW_SLOTS // 3 * self.precision_ms
            out = write_time + (window // 2 if is_near else window)
        is_delete = formats.PROPERTY_TIMER_DELETE_UNIQUE_KEY in record.properties
        if is_delete:
            bits |= formats.TIMER_UNIT_DELETE
        first, last, count = self.slots.get(out // self.precision_ms, [-1, -1, 0])
        topic = record.properties["REAL_TOPIC"].encode()
        position = self._append(
            formats.TIMER_UNIT.struct.pack(
                formats.TIMER_UNIT.nbytes,
                last,
                bits,
                write_time,
                out - write_time,
                record.physical_offset,
                record.store_size,
                kernels.message.string_hash_code(topic),
                0,
            )
        )
        self.slots[out // self.precision_ms] = [
            position if first == -1 else first, position, count + (-1 if is_delete else 1)
        ]  # fmt: skip
        self.queue_offset = record.queue_offset + 1
        return position

    def enqueue_all(self, records: Iterable[StoredMessage], write_time: int) -> None:
        for record in records:
            self.enqueue(record, write_time)

    def _append(self, unit: bytes) -> int:
        left = self.segment_nbytes - len(self.log) % self.segment_nbytes
        if left < len(unit) + BLANK_LEAST_NBYTES:
            blank = left.to_bytes(4, "big") + bytes(8)
            blank += formats.BLANK_MAGIC.to_bytes(4, "big", signed=True)
            self.log += blank.ljust(left, b"\0")[:left]
        self.log += unit
        return len(self.log) - len(unit)

    def wheel_bytes(self) -> bytes:
        """The wheel's content up to the last slot in use."""
        count = formats.TIMER_SLOT_COUNT
        top = max((time % count for time in self.slots), default=0) + 1
        content = bytearray(top * formats.TIMER_SLOT.nbytes)
        for time, (first, last, number) in self.slots.items():
            at = time % count * formats.TIMER_SLOT.nbytes
            formats.TIMER_SLOT.struct.pack_into(content, at, time, first, last, number, 0)
        return bytes(content)

    def write_wheel(self, name: str = formats.TIMER_WHEEL_FILE) -> Path:
        path = self.root / name
        with path.open("wb") as file:
            file.write(self.wheel_bytes())
            file.truncate(formats.TIMER_WHEEL_NBYTES)
        return path

    def write_log(self) -> list[Path]:
        folder = self.root / formats.TIMER_LOG_DIR
        folder.mkdir(exist_ok=True)
        paths = []
        for start in range(0, len(self.log), self.segment_nbytes):
            path = folder / formats.offset_to_file_name(start)
            part = self.log[start : start + self.segment_nbytes]
            path.write_bytes(bytes(part).ljust(self.segment_nbytes, b"\0"))
            paths.append(path)
        return paths

    def write_checkpoint(self, *, flushed: int | None = None) -> Path:
        path = self.root / formats.CONFIG_DIR / formats.TIMER_CHECK_FILE
        path.parent.mkdir(exist_ok=True)
        content = formats.TIMER_CHECK.struct.pack(
            self.read_time, len(self.log) if flushed is None else flushed, self.queue_offset,
            self.queue_offset, 0, 0, 0,
        )  # fmt: skip
        path.write_bytes(content.ljust(4096, b"\0"))
        return path

    def write(self) -> None:
        """Write all three."""
        self.write_wheel()
        self.write_log()
        self.write_checkpoint()


class TimedStore:
    """A closed store at ``root``; each call opens it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = TimerFiles(root)
        self.now = NOW
        self.version = "5.3.3"

    def put(self, *wishes: dict[str, str], topic: str = "T") -> list[StoredMessage]:
        """Put a message for each wish; return the records of the timer topic."""
        found = []
        with rocketstore.open(
            self.root, "a", timer_wheel_enable=True, broker_version=self.version,
            clock=lambda: self.now, mapped_file_size_commit_log=1 << 20,
        ) as store:  # fmt: skip
            for wish in wishes:
                result = store.put(topic, b"body", 1, properties=wish, unique_key=True)
                assert result.status == rocketstore.PutMessageStatus.PUT_OK
                record = store.look_message_by_offset(result.physical_offset)
                assert record is not None
                found.append(record.detach())
        return [one for one in found if one.topic == formats.TOPIC_TIMER]

    def report(self) -> tuple[TimerReport, list[rocketstore.StoredMessage]]:
        """The report, and the pending messages in its order."""
        with rocketstore.open(
            self.root, broker_version=self.version, clock=lambda: self.now
        ) as store:
            report = store.timers()
            return report, [one.message.detach() for one in report.pending]

    def delays(self) -> list[int]:
        """What is pending, by the wish TIMER_DELAY_MS, in order."""
        return [int(one.properties["TIMER_DELAY_MS"]) for one in self.report()[1]]

    def kinds(self) -> list[str]:
        return [one.kind for one in self.report()[0].findings]


def after(ms: int, **others: str) -> dict[str, str]:
    """The wish for a delivery in ``ms``."""
    return {"TIMER_DELAY_MS": str(ms), **others}
