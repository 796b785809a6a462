"""Lets the tests import what lies in ``fuzz/``."""

from __future__ import annotations

import sys
from pathlib import Path

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
if str(FUZZ) not in sys.path:
    sys.path.insert(0, str(FUZZ))
