"""The commands that are measured, in groups that leave the store as it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from operate.measuring import Cost, run

#: Which kinds of a group's stores a row needs: nothing changes ``store``.
Words = list[str]


@dataclass
class Place:
    """The store, and a folder for what commands make."""

    store: Path
    scratch: Path
    made: list[Path] = field(default_factory=list)

    def output(self, name: str) -> str:
        """Return a path that does not exist; it is removed after the group."""
        path = self.scratch / name
        _remove(path)
        self.made.append(path)
        return str(path)

    def clean(self) -> None:
        """Remove what commands made."""
        while self.made:
            _remove(self.made.pop())


Row = tuple[str, Cost]


def _row(name: str, *words: str, allowed: tuple[int, ...] = (0, 1)) -> Row:
    return name, run([*words, "--quiet"], allowed)


def checking(place: Place) -> Iterator[Row]:
    """Yield what looks for faults."""
    store = str(place.store)
    yield _row("doctor --quick", "doctor", store, "--quick")
    yield _row("doctor", "doctor", store)
    yield _row("doctor --deep", "doctor", store, "--deep")
    yield _row("verify", "verify", store)
    yield _row("verify --level structure", "verify", store, "--level", "structure")
    yield _row("reindex --what-if", "reindex", store, "--what-if")
    yield _row("plan", "plan", store, "-o", place.output("plan.json"))
    yield _row("recover --what-if", "recover", store, "--what-if")
    yield _row("report", "report", store, "-o", place.output("report.html"))


def mending(place: Place) -> Iterator[Row]:
    """Yield the repair of a damage: 4 KiB of zeros in the log, and a queue that is gone."""
    store = str(place.store)
    plan, undo = place.output("plan.json"), place.output("undo")
    with damaged(place):
        yield _row("doctor --quick, damaged", "doctor", store, "--quick")
        yield _row("doctor, damaged", "doctor", store)
        yield _row("verify, damaged", "verify", store)
        yield _row("plan, damaged", "plan", store, "-o", plan)
        yield _row("repair, damaged", "repair", store, "--plan", plan, "--undo", undo)
        yield _row("repair --undo", "repair", store, "--undo", undo)


class damaged:  # noqa: N801 - reads as a verb
    """Damage a store for a while."""

    def __init__(self, place: Place) -> None:
        self._log = sorted((place.store / "commitlog").iterdir())[0]
        folders = sorted((place.store / "consumequeue").iterdir())
        self._queue = sorted(folders[0].iterdir())[0]
        self._aside = Path(place.output("aside"))
        self._position = 16 << 20
        self._bytes = b""
        self._times = (0, 0)

    def __enter__(self) -> None:
        found = self._log.stat()
        self._times = (found.st_atime_ns, found.st_mtime_ns)
        self._bytes = self._write(bytes(4096))
        self._queue.rename(self._aside)

    def __exit__(self, *_: object) -> None:
        import os

        self._write(self._bytes)
        os.utime(self._log, ns=self._times)
        _remove(self._queue)
        self._aside.rename(self._queue)

    def _write(self, data: bytes) -> bytes:
        with open(self._log, "r+b") as file:
            file.seek(self._position)
            before = file.read(len(data))
            file.seek(self._position)
            file.write(data)
        return before


def looking(place: Place) -> Iterator[Row]:
    """Yield what answers questions."""
    store = str(place.store)
    for key in ("topic", "queue", "hour", "tag", "topic,queue", "property:KEYS", "property:WAIT"):
        yield _row(f"du --by {key}", "du", store, "--by", key, "--limit", "20")
    yield _row("du --no-crc", "du", store, "--no-crc")
    yield _row("volume", "volume", store)
    yield _row("lag", "lag", store)
    yield _row("retention", "retention", store)
    yield _row("capacity", "capacity", store)
    yield _row("keys", "keys", store)
    yield _row("delay", "delay", store)
    yield _row("transactions", "transactions", store)
    sql, body = "KEYS = 'order-000000017'", r"order \d+ was refunded"
    yield _row("grep SQL --count", "grep", store, sql, "--count")
    yield _row("grep --body-regex --count", "grep", store, "--body-regex", body, "--count")
    yield _row("trace KEY", "trace", store, "order-000000017")
    yield _row("prove", "prove", store, "0", "-o", place.output("evidence"))
    yield _row("find by key in the log", "find", store, "--key", "order-000000017")


def moving(place: Place) -> Iterator[Row]:
    """Yield what makes copies."""
    store = str(place.store)
    for form in ("parquet", "arrow", "ndjson", "csv"):
        out = place.output(form)
        yield _row(f"export --to {form}", "export", store, out, "--to", form)
        if form == "parquet":
            new = place.output("new")
            yield _row("import --offsets new", "import", out, new)
            _remove(Path(new))
        _remove(Path(out))
    raw, kept = place.output("raw"), place.output("kept")
    yield _row("export --columns topic,raw", "export", store, raw, "--columns", "topic,raw")
    yield _row("import --offsets keep", "import", raw, kept, "--offsets", "keep")
    place.clean()
    copy = place.output("copy")
    yield _row("clone --no-reflink", "clone", store, copy, "--no-reflink")
    yield _row("diff", "diff", store, copy)
    place.clean()
    first, second = place.output("first"), place.output("second")
    place.made += [Path(f"{name}.map.csv") for name in (first, second)]
    topics = [word for number in range(8) for word in ("-t", f"race-topic-{number:02d}")]
    yield _row("split --topic", "split", store, first, *topics)
    topics = [word for number in range(8, 16) for word in ("-t", f"race-topic-{number:02d}")]
    yield _row("split --topic, others", "split", store, second, *topics)
    both = place.output("both")
    place.made.append(Path(f"{both}.map.csv"))
    yield _row("merge", "merge", first, second, both)


GROUPS: dict[str, Callable[[Place], Iterator[Row]]] = {
    "checking": checking,
    "mending": mending,
    "looking": looking,
    "moving": moving,
}


def mending_reindex(place: Place) -> Iterator[Row]:
    """Yield the rebuilding of a store without queues and index."""
    aside = [(place.store / name, Path(place.output(f"old-{name}"))) for name in _DERIVED]
    for there, kept in aside:
        there.rename(kept)
    try:
        undo = place.output("undo-reindex")
        yield _row("reindex, all gone", "reindex", str(place.store), "--undo", undo)
    finally:
        for there, kept in aside:
            _remove(there)
            kept.rename(there)


_DERIVED = ("consumequeue", "index")
GROUPS["reindex"] = mending_reindex


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
