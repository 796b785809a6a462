"""How a campaign ends: its counts on standard output, and in a file when one is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def finish(summary: dict[str, Any], report: Path | None) -> int:
    """Print ``summary`` as JSON, write it to ``report`` too; return the exit status."""
    print(json.dumps(summary))
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if summary["broken"] else 0
