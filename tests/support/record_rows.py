"""Rows of ``scan_records``, of both bodies, and such as no log has."""

from __future__ import annotations

from rocketstore import formats
from rocketstore.status import RecordFlags
from support.kernel_bodies import both

ROW = formats.PARSED_RECORD


def rows_of(log: bytes, more_flags: int = 0) -> bytes:
    """Rows of all records of a log that begins at offset 0."""
    rows = bytearray(100 * ROW.nbytes)
    flags = RecordFlags.CHECK_BODY_CRC | RecordFlags.REPORT_PROPERTY_CRC | more_flags
    count, _, _ = both("message", "scan_records", log, 0, len(log), 0, len(log), flags, rows)
    return bytes(rows[: count * ROW.nbytes])


def changed(rows: bytes, number: int, name: str, value: int) -> bytes:
    """``rows`` with another value in one field of one row."""
    values = list(ROW.struct.unpack_from(rows, number * ROW.nbytes))
    values[[field.name for field in ROW.fields].index(name)] = value
    start = number * ROW.nbytes
    return rows[:start] + ROW.struct.pack(*values) + rows[start + ROW.nbytes :]
