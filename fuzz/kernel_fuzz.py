"""Fuzz the Cython kernels with sanitizers, and the readers in Python: ``python
fuzz/kernel_fuzz.py``.

The modules are built in ``build/fuzz-kernels``. A child process calls them. In one of ``--compare``
cases, the results of the native body are compared with those of the reference body.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
PROCESSOR_SECONDS = 10.0
_PROGRESS_NBYTES = 64


def case_random(seed: int, target: str, case: int) -> Random:
    """Return the random generator that determines a case."""
    return Random(f"{seed} {target} {case}")


def run_cases(
    target: str, seed: int, first: int, stop: int, compare: int, sanitized: bool, progress: Path
) -> int:
    """Run cases in this process; return the number of kernel calls. Raises a finding."""
    import kernel_cases

    runner = kernel_cases.Runner(sanitized)
    ask = kernel_cases.targets()[target]
    with progress.open("r+b") as file:
        note = mmap.mmap(file.fileno(), _PROGRESS_NBYTES)
    for case in range(first, stop):
        note[:8] = case.to_bytes(8, "big")
        # A case that hangs is killed by this signal.
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
        runner.compare = case % compare == 0
        ask(case_random(seed, target, case), runner)
    signal.setitimer(signal.ITIMER_PROF, 0)
    note[8:24] = runner.calls.to_bytes(8, "big") + runner.compared.to_bytes(8, "big")
    return runner.calls


def _child(options: argparse.Namespace) -> int:
    import kernel_build

    if options.library:
        sys.meta_path.insert(0, kernel_build.Finder(Path(options.library)))
    sys.path.insert(0, str(ROOT / "src"))
    first, stop = options.cases
    target = options.targets[0]
    sanitized = bool(options.library)
    try:
        run_cases(target, options.seed, first, stop, options.compare, sanitized, options.progress)
    except Exception:  # noqa: BLE001 - any error is reported to the parent
        traceback.print_exc()
        return 1
    return 0


def _run_target(options: argparse.Namespace, target: str, library: Path | None) -> int:
    """Run one target's cases; return the number of calls, -1 for a finding."""
    import kernel_build

    log = kernel_build.BUILD / f"{target}.log"
    progress = kernel_build.BUILD / f"{target}.progress"
    progress.write_bytes(bytes(_PROGRESS_NBYTES))
    first, stop = options.cases or (0, options.runs)
    command = [sys.executable, str(Path(__file__).resolve()), "--child", "--targets", target]
    command += ["--seed", str(options.seed), "--cases", str(first), str(stop)]
    command += ["--compare", str(options.compare), "--progress", str(progress)]
    command += ["--library", str(library)] if library else []
    environment = kernel_build.environment(options.compiler) if library else dict(os.environ)
    environment["PYTHONHASHSEED"] = "0"
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
        )
    note = progress.read_bytes()
    case, calls, compared = (int.from_bytes(note[at : at + 8], "big") for at in (0, 8, 16))
    if done.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-60:]
        what = _what(done.returncode)
        again = f"--seed {options.seed} --compare 1 --targets {target} --cases {case} {case + 1}"
        print("\n".join(tail), file=sys.stderr)
        print(f"{target}: case {case} of seed {options.seed} {what}; run it again with\n"
              f"python fuzz/kernel_fuzz.py {again}", file=sys.stderr)  # fmt: skip
        return -1
    rate = (stop - first) / max(time.monotonic() - began, 0.001)
    print(f"{target}: {stop - first} cases, {calls} calls, {compared} compared, {rate:.0f}/s",
          flush=True)  # fmt: skip
    return calls


def _what(status: int) -> str:
    if status == -signal.SIGPROF:
        return f"took more than {PROCESSOR_SECONDS:.0f} s of processor time"
    return f"ended with signal {-status}" if status < 0 else "is a finding"


def _coverage(options: argparse.Namespace) -> int:
    """Fuzz a reader, guided by coverage. Does not return if atheris ends the process."""
    import atheris  # type: ignore[import-not-found] - only needed here

    with atheris.instrument_imports(include=["rocketstore"]):
        import reader_cases
    check, make = reader_cases.CHECKS[options.coverage]
    corpus = ROOT / "build" / "fuzz-kernels" / f"corpus-{options.coverage}"
    corpus.mkdir(parents=True, exist_ok=True)
    for case in range(50):
        content = make(case_random(options.seed, options.coverage, case))
        (corpus / f"seed-{case:03d}").write_bytes(content)
    arguments = [sys.argv[0], f"-runs={options.runs}", f"-seed={options.seed}", "-timeout=10"]
    arguments += ["-max_len=4096", f"-artifact_prefix={corpus.parent}/", str(corpus)]
    atheris.Setup(arguments, lambda content: reader_cases.ask(check, content))
    atheris.Fuzz()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernel_fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000, help="cases of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", nargs="*", default=[])
    parser.add_argument("--cases", nargs=2, type=int, help="first case, and the one after the last")
    parser.add_argument("--compare", type=int, default=10, help="compare one of so many cases")
    parser.add_argument("--plain", action="store_true", help="use the checkout's own modules")
    parser.add_argument("--coverage", help="a reader (json, tables ...), guided by atheris")
    parser.add_argument("--compiler", default="gcc" if shutil.which("gcc") else "clang")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--library", help=argparse.SUPPRESS)
    parser.add_argument("--progress", type=Path, help=argparse.SUPPRESS)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; return the exit status: 1 for a finding, 2 if nothing can be run."""
    options = _parser().parse_args(arguments)
    if options.child:
        return _child(options)
    if options.coverage:
        return _coverage(options)
    import kernel_build
    import kernel_cases

    kernel_build.BUILD.mkdir(parents=True, exist_ok=True)
    try:
        library = None if options.plain else kernel_build.build(options.compiler)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"kernel_fuzz: no build with sanitizers: {error}", file=sys.stderr)
        return 2
    print(f"seed {options.seed}", flush=True)
    total, failed = 0, 0
    for target in options.targets or kernel_cases.targets():
        calls = _run_target(options, target, library)
        failed += calls < 0
        total += max(calls, 0)
    print(f"{total} calls in all, {failed or 'no'} target(s) with findings")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
