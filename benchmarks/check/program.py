"""What valgrind runs: ``python -m check.program LIBRARY ANSWER NAMES``."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from check import kernel_paths, put_paths, read_paths, store_paths
from check.counter import CountedPath, Counter


def paths() -> Iterator[CountedPath]:
    """Yield all paths, always in the same order."""
    yield from put_paths.paths()
    yield from read_paths.paths()
    yield from store_paths.paths()
    yield from kernel_paths.paths()


def main(arguments: list[str]) -> None:
    """Count the paths with NAMES in their name; write to ANSWER what the counts are for."""
    library, answer, names = Path(arguments[0]), Path(arguments[1]), arguments[2]
    counter = Counter(library)
    gc.disable()
    counted = {}
    for path in paths():
        assert path.name not in counted, path.name
        if names not in path.name:
            continue
        counter.count(path)
        counted[path.name] = {"units": path.units, "of": path.of, "loops": path.loops}
    answer.write_text(json.dumps(counted))


if __name__ == "__main__":
    main(sys.argv[1:])
