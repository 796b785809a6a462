"""Bodies of record batches as their producers gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.body_codec import decompressed
from rocketstore.errors import DecodeError

if TYPE_CHECKING:
    import pyarrow

#: Columns that hold or describe a body; ``sysFlag`` has its compression.
BODY_COLUMNS = ("body", "value", "bodySize")
_COMPRESSION = formats.SYS_FLAG_COMPRESSED | formats.SYS_FLAG_COMPRESSION_TYPE_MASK
#: Decompressed bytes of one batch.
_BATCH_NBYTES = 16 << 20
#: ``note(log offset, reason)`` of a body that cannot be decompressed.
Note = Callable[[int, str], None]


def decompressed_batches(batch: pyarrow.RecordBatch, note: Note) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a batch with decompressed bodies; a large batch becomes several.

    Parameters
    ----------
    batch : RecordBatch
        With ``sysFlag``, ``physicalOffset``, and ``body`` or ``value``. A body that cannot be
        decompressed stays as stored, with its flag.
    note : callable
        Called for each of those.
    """
    import pyarrow as pa

    flags = batch.column("sysFlag").to_pylist()
    if not any(flag & formats.SYS_FLAG_COMPRESSED for flag in flags):
        yield batch
        return
    name = "body" if "body" in batch.schema.names else "value"
    stored = batch.column(name)
    offsets = batch.column("physicalOffset")
    first, nbytes, bodies = 0, 0, []
    for number, flag in enumerate(flags):
        body = stored[number].as_py()
        if flag & formats.SYS_FLAG_COMPRESSED:
            try:
                body = decompressed(body, flag)
                flags[number] = flag & ~_COMPRESSION
            except DecodeError as error:
                note(offsets[number].as_py(), str(error))
        bodies.append(body)
        nbytes += len(body)
        if nbytes >= _BATCH_NBYTES or number + 1 == batch.num_rows:
            made = {
                name: pa.array(bodies, pa.binary()),
                "sysFlag": pa.array(flags[first : number + 1], pa.int32()),
                "bodySize": pa.array([len(one) for one in bodies], pa.int32()),
            }
            rows = batch.slice(first, number + 1 - first)
            yield pa.RecordBatch.from_arrays(
                [made.get(field.name, column) for field, column in
                 zip(rows.schema, rows.columns, strict=True)],
                schema=rows.schema,
            )  # fmt: skip
            first, nbytes, bodies = number + 1, 0, []
