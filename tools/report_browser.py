"""Open report pages in Chromium and check what a browser makes of them.

Usage: ``python tools/report_browser.py [--picture] [pytest arguments]``; ``make report-browser``
calls it. Installs Playwright's package into the environment, without a browser of its own, and
Debian's Chromium if this runs as root. ``--picture`` also renews the picture in the documentation.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import bootstrap
import toolchain

ROOT = Path(__file__).resolve().parent.parent
TEST = "tests/unit/reporting/test_report_browser.py"
PICTURE = ROOT / "docs/images/report.png"


def prepare() -> None:
    """Install what the tests need.

    Raises
    ------
    toolchain.MissingError
        If that is not possible.
    """
    toolchain.ensure_chromium(bootstrap.say)
    if importlib.util.find_spec("playwright") is None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        packages = project["project"]["optional-dependencies"]["browser"]
        bootstrap.say(f"installing {' '.join(packages)}")
        bootstrap.pip_install(Path(sys.executable), *packages)


def main(arguments: list[str]) -> int:
    """Entry point."""
    environment = {**os.environ, "ROCKETSTORE_BROWSER": "required"}
    if arguments[:1] == ["--picture"]:
        environment["ROCKETSTORE_PICTURE"] = str(PICTURE)
        del arguments[0]
    try:
        prepare()
    except toolchain.MissingError as missing:
        print(missing, file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", TEST, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
