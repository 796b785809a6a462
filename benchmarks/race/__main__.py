"""``python benchmarks/race``; see ``run.py``."""

from __future__ import annotations

import sys
from pathlib import Path

# The library is the one that is installed: a checkout's after `make develop`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    from race.run import main

    sys.exit(main())
