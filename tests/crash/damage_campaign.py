"""Stores damaged at two or three random places: every record whose bytes are whole is served.

``python -m crash.damage_campaign --stores 5000`` (``make damage STORES=5000 SEED=...``)
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rocketstore
from crash.campaigns import Ticker, expect_damage, finish, scratch_folder
from golden import golden_stores
from rocketstore import CorruptionError, formats

PAGE_NBYTES = 4096
RUN_NBYTES = 64
#: Golden stores whose queues are in files.
NAMES = tuple(name for name in golden_stores.NAMES if not name.startswith("rocksdb"))


@dataclass(frozen=True)
class Template:
    """A store to be damaged: its records as (log offset, bytes), and its segments."""

    name: str
    root: Path
    segment_nbytes: int
    records: dict[int, bytes]

    @property
    def segments(self) -> list[Path]:
        """The log's files that hold records."""
        end = max(offset + len(raw) for offset, raw in self.records.items())
        paths = sorted((self.root / "commitlog").iterdir())
        return [path for path in paths if int(path.name) < end]


@dataclass(frozen=True)
class Harm:
    """Bytes written over a place of the log."""

    offset: int
    content: bytes


def read_template(name: str, root: Path) -> Template:
    """Take a store that is whole."""
    with rocketstore.open(root) as store:
        records = {m.physical_offset: bytes(m.raw) for m in store.scan()}
        return Template(name, root, store.facts.commit_log_file_size, records)


def made_store(root: Path, chance: random.Random, *, left: str) -> None:
    """A store of several topics and sizes; ``left``: as it was closed, without its state file, or
    with ``abort`` and without it."""
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 3))
    with rocketstore.open(
        root, "x", clock=lambda: next(ticks), mapped_file_size_commit_log=65536,
        mapped_file_size_consume_queue=400, max_hash_slot_num=50, max_index_num=200,
    ) as store:  # fmt: skip
        for number in range(260):
            topic = chance.choice(("A", "B", "Seldom" if number % 40 == 0 else "A", "C"))
            body = chance.randbytes(chance.choice((0, 20, 100, 700, 3000)))
            store.put(topic, body, chance.randrange(3), None, f"k{number}")
        store.wait_dispatched(120)
    if left != "closed":
        (root / "rocketstore.state").unlink()
    if left == "killed":
        (root / "abort").touch()


def templates(folder: Path, chance: random.Random) -> list[Template]:
    """The golden stores, and some made here."""
    found = []
    for name in NAMES:
        (folder / name).mkdir()
        found.append(read_template(name, golden_stores.unpack(name, folder / name)))
    for left in ("closed", "no state", "killed"):
        made_store(folder / left, chance, left=left)
        found.append(read_template(left, folder / left))
    return found


def draw_harms(template: Template, chance: random.Random) -> list[Harm]:
    """Two or three places of one segment, mostly, or of several."""
    end = max(offset + len(raw) for offset, raw in template.records.items())
    segments = template.segments
    same = chance.choice(segments) if chance.random() < 0.8 else None
    harms = []
    for number in range(chance.choice((2, 2, 2, 3))):
        base = int((same or chance.choice(segments)).name)
        room = min(template.segment_nbytes, end - base)
        position = chance.randrange(room)
        if number == 0:
            position -= position % PAGE_NBYTES
            content = bytes(PAGE_NBYTES)
        elif chance.random() < 0.6:
            content = bytes(RUN_NBYTES)
        else:
            content = chance.randbytes(chance.choice((1, 4, 30, 64, 500)))
        harms.append(Harm(base + position, content[: room - position]))
    return harms


def harm(root: Path, harms: list[Harm], segment_nbytes: int) -> None:
    """Write the harms into a store's log."""
    for one in harms:
        base = one.offset - one.offset % segment_nbytes
        with (root / "commitlog" / formats.offset_to_file_name(base)).open("r+b") as file:
            file.seek(one.offset - base)
            file.write(one.content)


def whole_records(root: Path, template: Template) -> dict[int, bytes]:
    """The records whose bytes are as they were."""
    content = {int(p.name): p.read_bytes() for p in (root / "commitlog").iterdir()}
    size = template.segment_nbytes
    return {
        offset: raw
        for offset, raw in template.records.items()
        if content[offset - offset % size][offset % size :][: len(raw)] == raw
    }


def served(root: Path) -> dict[int, bytes]:
    """What a scan shows."""
    with rocketstore.open(root) as store:
        return {m.physical_offset: bytes(m.raw) for m in store.scan(on_corruption="skip")}


def faults(root: Path, template: Template, harms: list[Harm], *, mend: bool) -> Iterator[str]:
    """Damage the store at ``root`` and say what is wrong with how it is taken; ``mend``: open it
    for writing, or salvage it, too."""
    harm(root, harms, template.segment_nbytes)
    whole = whole_records(root, template)
    lost = whole.items() - served(root).items()
    if lost:
        yield f"{len(lost)} of {len(whole)} whole records are not served, first {min(lost)[0]}"
    if not mend:
        return
    try:
        rocketstore.open(root, "r+").close()
        what = "opening for writing"
    except CorruptionError:
        try:
            rocketstore.salvage(root)
        except rocketstore.RocketStoreError as error:
            yield f"salvage: {type(error).__name__}: {error}"
            return
        what = "a salvage"
    lost = whole.items() - served(root).items()
    if lost:
        yield f"{len(lost)} of {len(whole)} whole records are gone after {what}"


def run(stores: int, seed: int, *, mend_one_in: int = 1) -> tuple[Counter[str], list[str]]:
    """Damage so many stores; return counts, and what was wrong."""
    expect_damage()
    chance = random.Random(seed)
    counts: Counter[str] = Counter(stores=0, mended=0, broken=0)
    wrong: list[str] = []
    ticker = Ticker("damaged stores", stores)
    with scratch_folder("damage") as folder:
        every = templates(folder, chance)
        for number in range(stores):
            template = chance.choice(every)
            harms = draw_harms(template, chance)
            with tempfile.TemporaryDirectory(dir=folder) as place:
                root = Path(place) / "store"
                shutil.copytree(template.root, root)
                if chance.random() < 0.4:
                    (root / "abort").touch()
                mend = number % mend_one_in == 0
                found = list(faults(root, template, harms, mend=mend))
            counts["stores"] += 1
            counts["mended"] += mend
            if found:
                counts["broken"] += 1
                places = [(one.offset, len(one.content)) for one in harms]
                wrong.append(f"store {number} ({template.name}, {places}): {'; '.join(found)}")
                print(wrong[-1], file=sys.stderr, flush=True)
            ticker.report(number + 1, counts["broken"])
    return counts, wrong


def main() -> int:
    """Run the campaign; exit status 1 when something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--mend-one-in", type=int, default=5)
    parser.add_argument("--report", type=Path)
    words = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if words.seed is None else words.seed
    began = time.monotonic()
    counts, wrong = run(words.stores, seed, mend_one_in=words.mend_one_in)
    summary = {**counts, "seed": seed, "seconds": round(time.monotonic() - began), "wrong": wrong}
    return finish(summary, words.report)


if __name__ == "__main__":
    sys.exit(main())
