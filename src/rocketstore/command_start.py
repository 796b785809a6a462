"""Exit of the command ``rocketstore`` when its own package cannot be imported."""

from __future__ import annotations

import os
import sys
from itertools import pairwise

from rocketstore.errors import ConfigError

_USAGE, _UNEXPECTED = 2, 70


def end_command(error: Exception) -> None:
    """Print ``error`` in one sentence and exit if this process is the command; else do nothing.

    A program that imports the package gets the error itself.
    """
    if not _is_command() or os.environ.get("ROCKETSTORE_DEBUG", "") not in ("", "0"):
        return
    if sys.stderr is not None:
        sys.stderr.write(f"rocketstore: {error}\n")
    raise SystemExit(_USAGE if isinstance(error, ConfigError) else _UNEXPECTED)


def _is_command() -> bool:
    """Return whether ``rocketstore`` or ``python -m rocketstore`` started the process."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    modules = (("-m", "rocketstore"), ("-m", "rocketstore.cli"))
    as_module = any(pair in modules for pair in pairwise(sys.orig_argv))
    return name in ("rocketstore", "rocketstore.exe") or as_module
