"""Spark's types for the columns of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketstore.display.columns import COLUMNS, resolve
from rocketstore.errors import ConfigError

#: Metadata of a field if bodies are not compared with their checksums.
UNCHECKED = {"crc": "unchecked"}

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
#: By the format string of the Arrow C data interface.
_TYPES: dict[str, DataType] = {
    "i": IntegerType(),
    "l": LongType(),
    "tsu:UTC": TimestampType(),
    "u": StringType(),
    "z": BinaryType(),
    "+m": MapType(StringType(), StringType()),
    "+l": ArrayType(_HEADER),
}


def spark_schema(names: Sequence[str], *, check_crc: bool = True) -> StructType:
    """Return the schema of columns by name; every field is nullable.

    Parameters
    ----------
    names : sequence of str
        Columns.
    check_crc : bool
        False marks every field ``{"crc": "unchecked"}`` in its metadata.
    """
    metadata: dict[str, Any] | None = None if check_crc else UNCHECKED
    return StructType([StructField(name, _TYPES[COLUMNS[name]], True, metadata) for name in names])


def resolve_schema(schema: StructType) -> list[str]:
    """Return the columns of a user's schema, in its order.

    Parameters
    ----------
    schema : StructType
        Any of the known columns, with their types.

    Raises
    ------
    ConfigError
        For an unknown or duplicate column, another type, or a field that is not nullable.
    """
    try:
        names = resolve([field.name for field in schema.fields])
    except ValueError as error:
        raise ConfigError(f"the given schema: {error}") from None
    for field in schema.fields:
        known = _TYPES[COLUMNS[field.name]]
        if not _same(field.dataType, known):
            raise ConfigError(
                f"the given schema declares {field.name} as {field.dataType.simpleString()}; "
                f"it is {known.simpleString()} (cast it after the read)"
            )
        if not field.nullable:
            raise ConfigError(
                f"the given schema declares {field.name} as never null; remove NOT NULL"
            )
    return names


def _same(given: DataType, known: DataType) -> bool:
    return given == known and given.simpleString() == known.simpleString()
