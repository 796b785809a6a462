"""Fuzz the native code's C headers with sanitizers: ``python fuzz/native_fuzz.py``.

With clang it uses libFuzzer, which is guided by coverage. With any other compiler that supports
``-fsanitize=address,undefined`` it uses ``native/driver.c``, which changes inputs at random.
Programs, corpus and findings are in ``build/fuzz``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "fuzz" / "native"
BUILD = ROOT / "build" / "fuzz"
TARGETS = tuple(sorted(path.stem.removeprefix("fuzz_") for path in SOURCES.glob("fuzz_*.c")))
#: Instruction sets: every SIMD body of the headers is built.
_ARCHES = {"x86_64": ("x86-64", "x86-64-v2")}
_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fno-omit-frame-pointer"]
_SANITIZERS = "address,undefined"


class FuzzError(Exception):
    """Nothing could be run."""


@dataclass(frozen=True)
class Engine:
    """A compiler, and whether it has libFuzzer."""

    compiler: str
    has_library: bool


def find_engine(wanted: str | None = None) -> Engine | None:
    """Return the best installed compiler, or the wanted one; ``None`` if none has sanitizers."""
    names = [wanted] if wanted else ["clang", *(f"clang-{n}" for n in range(22, 10, -1)), "gcc"]
    for name in names:
        if shutil.which(name) is None:
            continue
        for library in (True, False):
            if _compiles(name, library):
                return Engine(name, library)
    return None


def _sanitizer_flags(library: bool) -> list[str]:
    kinds = f"fuzzer,{_SANITIZERS}" if library else _SANITIZERS
    return [f"-fsanitize={kinds}", "-fno-sanitize-recover=all"]


def _compiles(compiler: str, library: bool) -> bool:
    probe = "int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n);\n"
    probe += "int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n)\n"
    probe += "{ return (p == 0) + (n == 99); }\n"
    probe += "" if library else "int main(void) { return LLVMFuzzerTestOneInput(0, 0) - 1; }\n"
    with tempfile.TemporaryDirectory() as directory:
        output = str(Path(directory, "probe"))
        command = [compiler, *_sanitizer_flags(library), "-x", "c", "-", "-o", output]
        done = subprocess.run(command, input=probe, text=True, capture_output=True, check=False)
        if done.returncode:
            return False
        arguments = [output, "-runs=1"] if library else [output]
        return subprocess.run(arguments, capture_output=True, check=False).returncode == 0


def build(engine: Engine, target: str, arch: str, directory: Path) -> Path:
    """Compile one target; return the program."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / f"{target}-{arch or 'native'}"
    sources = [str(SOURCES / f"fuzz_{target}.c")]
    sources += [] if engine.has_library else [str(SOURCES / "driver.c")]
    command = [
        *(engine.compiler, *_FLAGS, *([f"-march={arch}"] if arch else [])),
        *_sanitizer_flags(engine.has_library),
        *(f"-I{folder}" for folder in sorted((ROOT / "src" / "_native").iterdir())),
        *(*sources, "-o", str(program)),
    ]
    subprocess.run(command, check=True)
    return program


def arches() -> tuple[str, ...]:
    """Return the instruction sets to build for on this machine."""
    return _ARCHES.get(os.uname().machine, ("",))


# --- corpus -------------------------------------------------------------------------------------


def make_corpus(target: str, directory: Path) -> Path:
    """Write inputs from the golden stores; return their folder."""
    folder = directory / f"corpus-{target}"
    folder.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(_INPUTS[target](), start=1):
        (folder / f"seed-{number:03d}").write_bytes(content)
    return folder


def _trees() -> list[dict[str, bytes]]:
    """Return the files of some golden stores by path."""
    sys.path[:0] = [str(ROOT / "tests" / "golden")]
    import golden_stores

    found = []
    for name in ("broker-5.3.3", "crc-5.3.3", "lmq-5.3.3", "plain-4.9.8", "plain-5.5.0"):
        with tempfile.TemporaryDirectory() as directory:
            root = golden_stores.unpack(name, Path(directory))
            files = [path for path in sorted(root.rglob("*")) if path.is_file()]
            found.append({path.relative_to(root).as_posix(): path.read_bytes() for path in files})
    return found


def _records() -> list[bytes]:
    """Return every 20th record of the logs, and every 60th together with its successors."""
    found = []
    for files in _trees():
        for path, content in files.items():
            if not path.startswith("commitlog/"):
                continue
            at, number = 0, 0
            while at + 8 <= len(content):
                size = int.from_bytes(content[at : at + 4], "big")
                if size < 91 or at + size > len(content):
                    break
                if number % 20 == 0:
                    found.append(content[at : at + size])
                if number % 60 == 0:
                    found.append(content[at : at + 4 * size])
                at, number = at + size, number + 1
    return found


def _record_inputs() -> list[bytes]:
    # Flags, repairs (own offset and CRC), offset, space after the log and queues to look for.
    heads = (b"\x1f\x0a\x00\xf1", b"\x11\x0f\x02\xf2", b"\x09\x02\x01\x01")
    return [heads[n % 3] + record for n, record in enumerate(_records())]


def _index_inputs() -> list[bytes]:
    files = [c for tree in _trees() for path, c in tree.items() if path.startswith("index/")]
    small = [content for content in files if len(content) == 40 + 4 * 50 + 20 * 200]
    return [b"\x32\xc8\x10" + content for content in small] + [b"\x01\x02\x05" + bytes(84)]


def _put_inputs() -> list[bytes]:
    found = []
    for choice in range(16):
        host = b"\x00\x0e10.0.0.1:10911"
        numbers = bytes(range(4 + 8 + 5 + 4 + 8))
        parts = b"\x00\x05Topic" + b"\x00\x12TAGS\x01a\x02KEYS\x01k 1\x02x" + b"\x00\x04body"
        found.append(bytes([choice]) + host + numbers + parts)
    return found


def _sql92_inputs() -> list[bytes]:
    """Return programs, each with its length before it, and properties or a number after it."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
    from random import Random

    from rocketstore.errors import FilterSyntaxError
    from rocketstore.filter.sql92.parser import Parser
    from support.sql92_cases import TEXTS, random_expression, random_stored

    found = [b"\x00\x00" + text.encode() for text in TEXTS]
    random = Random(92)
    while len(found) < 400:
        try:
            parsed = Parser(random_expression(random), text_search=True, strict=False).parse()
        except FilterSyntaxError:
            continue
        program = parsed.code.program()
        found.append(len(program).to_bytes(2, "big") + program + random_stored(random))
    return found


_INPUTS = {
    "record": _record_inputs,
    "index": _index_inputs,
    "put": _put_inputs,
    "sql92": _sql92_inputs,
}


# --- running ------------------------------------------------------------------------------------


def run(engine: Engine, program: Path, corpus: Path, runs: int, seed: int, log: Path) -> int:
    """Run a program; return the number of inputs tried. Raises ``FuzzError`` for a finding."""
    work = program.parent / f"{program.name}-work"
    work.mkdir(exist_ok=True)
    if engine.has_library:
        grown = work / "grown"
        grown.mkdir(exist_ok=True)
        options = [f"-runs={runs}", f"-seed={seed}", "-max_len=8192", "-timeout=20"]
        options += [f"-artifact_prefix={work}/", "-print_final_stats=1", str(grown), str(corpus)]
        command = [str(program), *options]
    else:
        command = [str(program), str(corpus), str(runs), str(seed)]
    # Leaks are reported when the process ends.
    environment = {**os.environ, "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1"}
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            command, cwd=work, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    if done.returncode:
        tail = "\n".join(text.splitlines()[-60:])
        raise FuzzError(f"{program.name} (seed {seed}) found something; see {work}\n{tail}")
    found = re.search(r"(?:executed_units: |done: )(\d+)", text)
    return int(found[1]) if found else runs


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzers; return the exit status: 1 for a finding, 2 if nothing can be run."""
    parser = argparse.ArgumentParser(prog="native_fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs of each program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--compiler", help="instead of the best one installed")
    parser.add_argument("--directory", type=Path, default=BUILD)
    options = parser.parse_args(arguments)
    engine = find_engine(options.compiler)
    if engine is None:
        print("native_fuzz: no compiler with address and undefined sanitizers", file=sys.stderr)
        return 2
    kind = "libFuzzer" if engine.has_library else "random changes"
    print(f"{engine.compiler}, {kind}, seed {options.seed}", flush=True)
    total = 0
    for target in options.targets:
        corpus = make_corpus(target, options.directory)
        for arch in arches():
            program = build(engine, target, arch, options.directory)
            began = time.monotonic()
            log = options.directory / f"{program.name}.log"
            try:
                count = run(engine, program, corpus, options.runs, options.seed, log)
            except FuzzError as error:
                print(error, file=sys.stderr)
                return 1
            total += count
            rate = count / max(time.monotonic() - began, 0.001)
            print(f"{program.name}: {count} executions, {rate:.0f}/s", flush=True)
    print(f"{total} executions in all, nothing was found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
