"""``python benchmarks/race``; see ``run.py``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "src")]

if __name__ == "__main__":
    from race.run import main

    sys.exit(main())
