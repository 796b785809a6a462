"""``python -m crash.faults``: build the library and become the campaign with it."""

from __future__ import annotations

import os
import sys

from crash.faults import library

os.environ["LD_PRELOAD"] = str(library.build())
os.execv(sys.executable, [sys.executable, "-m", "crash.faults.campaign", *sys.argv[1:]])
