"""Run tests on native modules built with a sanitizer: ``python tools/sanitize.py address``.

``address`` is AddressSanitizer with UBSan, ``thread`` is ThreadSanitizer. The modules are built in
``build/sanitize-<which>``, together with a copy of the package that uses them. Tests pass the
copy's folder to every Python that they start. Arguments after the name replace the suites below and
go to pytest. A report of a sanitizer ends its process, which fails the test.
"""

from __future__ import annotations

import argparse
import fcntl
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "fuzz"))

import kernel_build  # noqa: E402 - in another folder

#: Tests to run by default: all that call the kernels in their own process.
SUITES = {
    kernel_build.ADDRESS: (
        *("tests/unit", "tests/property", "tests/corruption", "tests/concurrency", "tests/golden"),
        "tests/crash/test_failures.py",
    ),
    kernel_build.THREAD: (
        *(
            "tests/concurrency",
            "tests/unit/flush/test_async_appends.py",
            "tests/unit/store/test_default_message_store.py",
        ),
        *("tests/unit/query/test_tail.py", "tests/unit/kernels/test_commit_log.py"),
        *("tests/unit/services/test_waiting.py", "tests/unit/flush/test_group_commit_follow.py"),
        *("tests/unit/flush/test_group_commit.py", "tests/unit/cleaning/test_cleaner.py"),
        *(
            "tests/unit/query/test_store_reader_while_written.py",
            "tests/unit/kernels/test_reput.py",
        ),
        *("tests/unit/kernels/test_mapping.py", "tests/unit/files/test_mapping_cache.py"),
        *(
            "tests/unit/files/test_mapped_file_queue.py",
            "tests/unit/log/test_transient_store_pool.py",
        ),
        *("tests/unit/directory/test_checkpoint.py", "tests/unit/kernels/test_arrow_decoder.py"),
        *("tests/unit/sources/test_walk.py", "tests/unit/sources/test_walk_odd_logs.py"),
    ),
}
#: Tests for continuous integration: appending and checking records.
SHORT = {
    kernel_build.ADDRESS: (
        "tests/unit/kernels/test_commit_log.py",
        "tests/unit/kernels/test_message.py",
    ),
    kernel_build.THREAD: ("tests/concurrency/test_appender.py",),
}
#: Tests that cannot pass, because the sanitizer changes what they check, and long tests of Python
#: code alone.
LEFT_OUT = {
    # The sanitizer makes locking memory do nothing. It also ends `dd` (a command of that page),
    # whose call of aligned_alloc it rejects.
    kernel_build.ADDRESS: (
        "tests/unit/kernels/test_mapping.py::test_locking_is_counted_by_the_system",
        "tests/unit/log/test_warm_up.py::test_a_store_warms_its_segments_up_in_the_background",
        "tests/docs/test_page_outputs.py::test_pages_show_what_their_commands_write"
        "[docs/command-line-care.md]",
        "tests/unit/cli/test_text.py::test_escaped_text_holds_nothing_a_terminal_acts_on",
        "tests/unit/config_managers/test_json_dialect.py::test_work_and_memory_are_bounded",
        "tests/property/test_store_machine.py::test_store_machine_on_the_other_body",
    ),
    # Locking memory does nothing here, too. A signal raised in a handler waits for the handler's
    # end, so that stacked handlers call each other forever. The sanitizer's own mappings count.
    # The last two race on purpose: in one a thread changes the caller's bytes during a put (F09).
    # The other copies whole segments while they are written, and reads only the published part.
    kernel_build.THREAD: (
        "tests/unit/kernels/test_mapping.py::test_locking_is_counted_by_the_system",
        "tests/unit/kernels/test_mapping.py::test_a_lock_that_is_not_permitted_is_an_error",
        "tests/unit/kernels/test_mapping.py::test_a_handler_installed_later",
        "tests/unit/files/test_mapping_cache.py::test_a_store_of_more_queues_than_may_be_mapped",
        "tests/concurrency/test_appender.py::test_a_body_that_changes_meanwhile",
        "tests/concurrency/test_appender.py::test_a_follower_sees_a_batch_at_once",
    ),
}
#: Runs of the store machine: a quarter of the usual number, as each takes several times as long.
MACHINE_RUNS = "30"
SHORT_MODULES = ("commit_log", "record")


def prepare(sanitizer: str, compiler: str, *, short: bool) -> dict[str, str]:
    """Build the modules and the package's copy; return the environment of the tests."""
    directory = ROOT / "build" / f"sanitize-{sanitizer}"
    modules = SHORT_MODULES if short else kernel_build.MODULES
    library = kernel_build.build(compiler, directory, sanitizer, modules)
    source = copy_package(directory, library)
    environment = kernel_build.environment(compiler, sanitizer)
    environment["PYTHONPATH"] = str(source)
    environment.setdefault("ROCKETSTORE_MACHINE_RUNS", MACHINE_RUNS)
    # pytest captures the output of tests, so reports go to files beside the modules.
    for report in directory.glob("report.*"):
        report.unlink()
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        # Tests let SIGBUS end a process on purpose. An unexpected SIGBUS still fails its test.
        environment[name] += f":handle_sigbus=0:log_path={directory / 'report'}"
    return environment


def copy_package(directory: Path, library: Path) -> Path:
    """Combine the package and the modules of ``library``; return the folder to import from."""
    source = directory / "src"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    native = source / "rocketstore" / "_native"
    for module in library.glob("*.so"):
        for own in native.glob(f"{module.stem}.*.so"):
            own.unlink()
        shutil.copy2(module, native)
    return source


def print_reports(sanitizer: str) -> int:
    """Print the sanitizer's reports; return their number."""
    reports = sorted((ROOT / "build" / f"sanitize-{sanitizer}").glob("report.*"))
    for report in reports:
        print(f"--- {report}", report.read_text(encoding="utf-8", errors="replace"), sep="\n")
    return len(reports)


def main() -> int:
    """Run the tests; return pytest's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("sanitizer", choices=sorted(kernel_build.SANITIZERS))
    parser.add_argument("--short", action="store_true", help="the part that is run every time")
    parser.add_argument("--compiler", default="gcc" if shutil.which("gcc") else "clang")
    options, arguments = parser.parse_known_args()
    directory = ROOT / "build" / f"sanitize-{options.sanitizer}"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs would mix their modules and reports
        return run(options, arguments)


def run(options: argparse.Namespace, arguments: list[str]) -> int:
    """Build, run the tests, and print the reports."""
    environment = prepare(options.sanitizer, options.compiler, short=options.short)
    suites = (SHORT if options.short else SUITES)[options.sanitizer]
    tests = arguments or [*suites, "-q", "--timeout", "900"]
    # ThreadSanitizer needs fixed memory areas, which randomized addresses may occupy.
    fixed = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []
    command = [*fixed, sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider"]
    source = ROOT / "build" / f"sanitize-{options.sanitizer}" / "src"
    command += ["-o", f"pythonpath=tests {source}", *tests]
    command += [word for test in LEFT_OUT[options.sanitizer] for word in ("--deselect", test)]
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    found = print_reports(options.sanitizer)
    print(f"sanitizer {options.sanitizer}: {found} reports, pytest's status is {status}")
    return status or int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
