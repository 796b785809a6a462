"""RocketMQ store directories in PySpark: a data source, streams, a sink, and jobs.

Importing this package imports neither PySpark nor pyarrow; each name imports its module on first
use.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Every public name, and the module of this package that holds it.
_PUBLIC = {
    "fsck": "jobs.fsck.job",
    "FsckReport": "jobs.fsck.job",
    "bulk_load": "jobs.bulk_loading",
    "compact": "jobs.compact",
    "export_parquet": "jobs.export",
    "replay": "jobs.replay",
    "local_session": "base.local",
    "register": "source",
    "LoadReport": "jobs.bulk_loading",
    "RocketStoreSource": "source",
    "RocketStoreSourceWithFilters": "source",
    "rebuild_consume_queues": "jobs.queue_units",
    "rebuild_index": "jobs.index",
    "scan": "reading.scanning",
    "stats": "jobs.stats",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
