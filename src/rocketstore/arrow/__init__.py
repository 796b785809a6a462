"""Messages as Arrow tables and Parquet files.

Needs pyarrow (``pip install "rocketstore[arrow]"``).
"""

from __future__ import annotations

from rocketstore.arrow.columns import arrow_schema, resolve
from rocketstore.arrow.parquet import to_parquet
from rocketstore.arrow.reading import read_batches

__all__ = ["arrow_schema", "read_batches", "resolve", "to_parquet"]
