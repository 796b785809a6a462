"""Run tests on native modules built with a sanitizer: ``python tools/sanitize.py address``.

``address`` is AddressSanitizer with UBSan, ``thread`` is ThreadSanitizer. The modules are built in
``build/sanitize-<which>``; a ``sitecustomize`` makes every Python that the tests start take them.
What follows the name goes to pytest, in place of the suites below. A report of a sanitizer ends the
process that it is about, which fails its test.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "fuzz"))

import kernel_build  # noqa: E402 - in another folder

_SITE = '''"""Take the native modules that a sanitizer watches."""
import sys
sys.path.insert(0, {fuzz!r})
from pathlib import Path
from kernel_build import Finder
sys.path.remove({fuzz!r})
sys.meta_path.insert(0, Finder(Path({library!r})))
'''
#: What runs without arguments: everything that calls the kernels in this process.
SUITES = {
    kernel_build.ADDRESS: (
        *("tests/unit", "tests/property", "tests/corruption", "tests/concurrency", "tests/golden"),
        "tests/crash/test_failures.py",
    ),
    kernel_build.THREAD: (
        *("tests/concurrency", "tests/unit/test_async_puts.py", "tests/unit/test_store.py"),
        *("tests/unit/test_tail.py", "tests/unit/test_commit_log_kernel.py"),
    ),
}
#: In continuous integration: appending and checking records.
SHORT = {
    kernel_build.ADDRESS: ("tests/unit/test_commit_log_kernel.py", "tests/unit/test_message.py"),
    kernel_build.THREAD: ("tests/concurrency/test_appender.py",),
}
#: Tests that race on purpose: a thread changes the caller's own bytes while they are put (F09); one
#: copies whole segments, also what is being written, and looks at what was published only.
RACING = (
    "tests/concurrency/test_appender.py::test_a_body_that_changes_meanwhile",
    "tests/concurrency/test_appender.py::test_a_follower_sees_a_batch_at_once",
)
SHORT_MODULES = ("commit_log", "record")


def prepare(sanitizer: str, compiler: str, *, short: bool) -> dict[str, str]:
    """Build what is needed; return the environment of the tests."""
    directory = ROOT / "build" / f"sanitize-{sanitizer}"
    modules = SHORT_MODULES if short else kernel_build.MODULES
    library = kernel_build.build(compiler, directory, sanitizer, modules)
    site = directory / "site"
    site.mkdir(exist_ok=True)
    text = _SITE.format(fuzz=str(ROOT / "fuzz"), library=str(library))
    (site / "sitecustomize.py").write_text(text, encoding="utf-8")
    environment = kernel_build.environment(compiler, sanitizer)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), path)))
    # pytest keeps what tests print; reports go to files beside the modules.
    for report in directory.glob("report.*"):
        report.unlink()
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        environment[name] += f":log_path={directory / 'report'}"
    return environment


def print_reports(sanitizer: str) -> int:
    """Show what the sanitizer reported; return how many reports that were."""
    reports = sorted((ROOT / "build" / f"sanitize-{sanitizer}").glob("report.*"))
    for report in reports:
        print(f"--- {report}", report.read_text(encoding="utf-8", errors="replace"), sep="\n")
    return len(reports)


def main() -> int:
    """Return pytest's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("sanitizer", choices=sorted(kernel_build.SANITIZERS))
    parser.add_argument("--short", action="store_true", help="the part that is run every time")
    parser.add_argument("--compiler", default="gcc" if shutil.which("gcc") else "clang")
    options, arguments = parser.parse_known_args()
    directory = ROOT / "build" / f"sanitize-{options.sanitizer}"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # modules and reports of two runs would mingle
        return run(options, arguments)


def run(options: argparse.Namespace, arguments: list[str]) -> int:
    """Build, run the tests, show what was reported."""
    environment = prepare(options.sanitizer, options.compiler, short=options.short)
    suites = (SHORT if options.short else SUITES)[options.sanitizer]
    tests = arguments or [*suites, "-q", "--timeout", "900"]
    # ThreadSanitizer wants its own places in memory, which randomized addresses may take.
    fixed = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []
    command = [*fixed, sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests]
    if options.sanitizer == kernel_build.THREAD:
        command += [word for test in RACING for word in ("--deselect", test)]
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    found = print_reports(options.sanitizer)
    print(f"sanitizer {options.sanitizer}: {found} reports, pytest's status is {status}")
    return status or int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
