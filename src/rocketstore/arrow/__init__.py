"""Messages as Arrow tables; needs pyarrow (``pip install "rocketstore[arrow]"``)."""

from __future__ import annotations

from rocketstore.arrow.columns import arrow_schema, resolve

__all__ = ["arrow_schema", "resolve"]
