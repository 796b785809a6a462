"""Lets Spark discover ``format("rocketstore")``: Spark imports every module ``pyspark_*``.

If such a module raises on import, Spark hides every other Python data source of the session. This
module therefore never raises, and loads rocketstore only when the source is used. A broken
installation then raises its own error.
"""

from __future__ import annotations

from typing import Any

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # noqa: BLE001
    # PySpark before 4.0 has no Python data sources and discovers none.
    DataSource = object


class DefaultSource(DataSource):
    """The data source ``rocketstore``, loaded when it is used."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "rocketstore"

    def schema(self) -> Any:
        """Return the schema that the options ask for."""
        return _source(self).schema()

    def reader(self, schema: Any) -> Any:
        """Return the reader of a batch query."""
        return _source(self).reader(schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        """Return the reader of a stream."""
        return _source(self).streamReader(schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Return the writer of a batch."""
        return _source(self).writer(schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        """Return the writer of a stream."""
        return _source(self).streamWriter(schema, overwrite)

    def __reduce__(self) -> Any:
        from rocketstore.spark.base.shipping import shipped

        return shipped(__name__, "DefaultSource", (dict(self.options),))


def _source(source: Any) -> Any:
    from rocketstore.spark.source import RocketStoreSource

    return RocketStoreSource(source.options)
