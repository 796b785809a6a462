"""Picks the body of the kernels: native (Cython) or reference (plain ``struct``), name for name.

``ROCKETSTORE_KERNELS=reference`` selects the reference; any value other than ``native`` or
``reference`` is a ``ConfigError``. A missing native build is an ``ImportError`` with a hint,
never a silent fallback. ``rocketstore.kernels.name`` is the body in use.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from rocketstore.command_start import end_command
from rocketstore.errors import ConfigError

MODULES = (
    *("locks", "mapping", "message", "commit_log", "consume_queue", "batch_consume_queue"),
    *("index_file", "reput", "reading", "waiting"),
)
#: Modules that only some programs need; they are loaded on first use.
LATER = (
    *("arrow", "passes_stats", "passes_fsck", "passes_queue_units", "passes_index_keys"),
    *("passes_rows", "passes_select", "staged_records", "sql92"),
    *("deliveries", "transactions"),
)


def load(body: str) -> dict[str, ModuleType]:
    """Import all kernel modules of one body (``native`` or ``reference``).

    Raises
    ------
    ConfigError
        For any other name.
    ImportError
        When the native modules are not built.
    """
    if body not in ("native", "reference"):
        raise ConfigError(f"ROCKETSTORE_KERNELS is {body!r}; it must be 'native' or 'reference'")
    return {module: _import(body, module) for module in MODULES}


def _import(body: str, module: str) -> ModuleType:
    if module == "locks" and sys.version_info >= (3, 14):
        # There an interrupt may arrive between ``__enter__`` and the ``with`` block; only a Python
        # method can release the lock then.
        body = "reference"
    try:
        return importlib.import_module(f"rocketstore._{body}.{module}")
    except ImportError as error:
        raise ImportError(
            f"rocketstore's {body} kernels cannot be imported ({error}); in a checkout run "
            "`make develop`, or set ROCKETSTORE_KERNELS=reference for the slow pure-Python body"
        ) from error


#: Which body runs: ``"native"`` or ``"reference"``.
name: str = os.environ.get("ROCKETSTORE_KERNELS", "native")
try:
    _modules = load(name)
except (ConfigError, ImportError) as error:
    end_command(error)
    raise
if TYPE_CHECKING:
    # Both bodies have the types of the native stubs.
    from rocketstore._native import arrow as arrow
    from rocketstore._native import batch_consume_queue as batch_consume_queue
    from rocketstore._native import commit_log as commit_log
    from rocketstore._native import consume_queue as consume_queue
    from rocketstore._native import deliveries as deliveries
    from rocketstore._native import index_file as index_file
    from rocketstore._native import locks as locks
    from rocketstore._native import mapping as mapping
    from rocketstore._native import message as message
    from rocketstore._native import passes_fsck as passes_fsck
    from rocketstore._native import passes_index_keys as passes_index_keys
    from rocketstore._native import passes_queue_units as passes_queue_units
    from rocketstore._native import passes_rows as passes_rows
    from rocketstore._native import passes_select as passes_select
    from rocketstore._native import passes_stats as passes_stats
    from rocketstore._native import reading as reading
    from rocketstore._native import reput as reput
    from rocketstore._native import sql92 as sql92
    from rocketstore._native import staged_records as staged_records
    from rocketstore._native import transactions as transactions
    from rocketstore._native import waiting as waiting
else:
    locks = _modules["locks"]
    mapping = _modules["mapping"]
    message = _modules["message"]
    commit_log = _modules["commit_log"]
    consume_queue = _modules["consume_queue"]
    batch_consume_queue = _modules["batch_consume_queue"]
    index_file = _modules["index_file"]
    reput = _modules["reput"]
    reading = _modules["reading"]
    waiting = _modules["waiting"]

    def __getattr__(module: str) -> ModuleType:
        """Load one of ``LATER`` on first use."""
        if module not in LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {module!r}")
        loaded = globals()[module] = _import(name, module)
        return loaded
