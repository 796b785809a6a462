"""One round of the race for one message set: every row, contestant after contestant.

What a row needs is made before the clock starts, and checked after it has stopped: the number of
messages, the statuses (by the workers), the end of the log, and messages read back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.contestants import Contestant
from race.figures import LIMIT, REFERENCE, Sample
from race.messages import BORN_HOST, QUEUES, MessageSet
from race.rows import ASKS, OPENS, PUTS, RESIDENT, SHARED, AskRow, Family, PutRow, SharedRow

#: Bytes of log that the rows with a step of 0 put at a time.
PART_NBYTES = 32 << 20
#: Messages that the reference kernels put, and the most that they are asked for.
REFERENCE_COUNT, REFERENCE_ASKED = 2_000, 200
#: Messages of a store that several rows fill before the first of them, so that its queues and index
#: file exist: some rows put no more than a few hundred messages.
FIRST_COUNT = 256
#: Messages that are read back from a store.
COMPARED = 200


class WrongResultError(Exception):
    """A contestant's result is not what was asked for."""


@dataclass
class Field:
    """Who takes part, and where.

    Attributes
    ----------
    contestants : list of Contestant
    start : mapping of str to callable
        Starts another process of a contestant, to be killed.
    folder : Path
        Stores are made here, and removed.
    rows : frozenset of str
        Names of the rows to run.
    end_of : str
        The jar whose log must end where ours ends.
    most : int, optional
        Messages of a row whose store is not read afterwards.
    """

    contestants: list[Contestant]
    start: Mapping[str, Callable[[], Contestant]]
    folder: Path
    rows: frozenset[str]
    end_of: str
    most: int | None = None


def settle(folder: Path) -> None:
    """Sync all files, so that the next contestant does not wait for this one's pages."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)


def check_messages(folder: Path, chosen: MessageSet, count: int) -> None:
    """Read the first messages, and some by key, from a store of any contestant."""
    import rocketstore

    with rocketstore.open(folder, "r") as store:
        for number, message in zip(range(min(COMPARED, count)), store.scan(), strict=False):
            _check_message(chosen, number, message, folder)
        if not (folder / "index").exists():
            return  # the bare loop's store is a log alone
        for number in (int(sample) % count for sample in chosen.samples[:COMPARED]):
            key = chosen[number].properties["KEYS"]
            (message,) = store.find(topic=chosen[number].topic, key=key)
            _check_message(chosen, number, message, folder)


def _check_message(chosen: MessageSet, number: int, message: Any, folder: Path) -> None:
    plain = chosen[number]
    wanted = (
        plain.topic, plain.queue, plain.body, plain.properties, plain.born_timestamp, BORN_HOST,
        plain.kind.sys_flag, plain.kind.reconsume_times,
    )  # fmt: skip
    got = (
        message.topic, message.queue_id, message.body, dict(message.properties),
        message.born_timestamp, message.born_host, message.sys_flag, message.reconsume_times,
    )  # fmt: skip
    if got != wanted:
        raise WrongResultError(f"message {number} of {folder} is {got}, not {wanted}")


class Round:
    """The rows of one message set; ``run`` does them once and returns the samples."""

    def __init__(self, field: Field, shape: str, body: str, chosen: MessageSet) -> None:
        self._field = field
        self._shape = shape
        self._body = body
        self._set = chosen
        self._count = len(chosen)
        self._number = 0
        self._samples: list[Sample] = []
        self._ends: dict[tuple[str, int], dict[str, int]] = {}
        self._images: dict[str, tuple[Path, int]] = {}

    def run(self, number: int, count: int) -> list[Sample]:
        """Do all rows with the first ``count`` messages."""
        if count != self._count:
            self._drop_images()
        self._number, self._count, self._samples = number, count, []
        rows = [row for row in PUTS if row.name in self._field.rows and self._shape in row.shapes]
        reads = self._shape == "producer" and self._field.rows.intersection(
            {row.name for row in ASKS} | set(OPENS)
        )
        if self._shape == "producer":
            for family in SHARED:
                self._share(family)
        done: set[tuple[str, str]] = set()
        fills = bool(reads) or PUTS[0] in rows
        if fills:
            # What the last step measures, on the stores that are read then.
            done = {(one.name, self._words(one, PUTS[0])) for one in self._field.contestants}
        for row in reversed(rows):
            if row is not PUTS[0]:
                self._put(row, done)
        if fills:
            if LIMIT in {one.name for one in self._field.contestants}:
                self._put_resident()
            for one in self._order():
                self._put_one(one, PUTS[0], self._words(one, PUTS[0]), keep=True)
            if reads:
                self._ask_all()
                self._open_all()
            for one in self._order():
                one.do("close")
                self._remove(one)
        return self._samples

    def close(self) -> None:
        """Remove what is kept between rounds."""
        self._drop_images()

    # --- helpers ------------------------------------------------------------------------------

    def _order(self) -> list[Contestant]:
        """Another contestant begins in each round."""
        all_of_them = self._field.contestants
        first = self._number % len(all_of_them)
        return all_of_them[first:] + all_of_them[:first]

    def _amount(self, one: Contestant) -> int:
        return min(self._count, REFERENCE_COUNT) if one.name == REFERENCE else self._count

    def _place(self, one: Contestant) -> Path:
        return self._field.folder / one.name.replace(" ", "-")

    def _remove(self, one: Contestant) -> None:
        shutil.rmtree(self._place(one), ignore_errors=True)

    def _note(self, one: Contestant, line: str, answer: dict[str, Any], count: int) -> None:
        # Several threads open a store: there the process's time is what counts.
        cpu = answer["process" if line in OPENS else "cpu"]
        self._samples.append(
            Sample(
                self._shape, self._body, line, one.name, self._number,
                answer["wall"], cpu, answer["process"], count,
            )
        )  # fmt: skip

    def _require(self, one: Contestant, line: str, got: int, wanted: int) -> None:
        if got != wanted:
            raise WrongResultError(f"{one.name}: {line}: {got} instead of {wanted}")

    # --- puts ---------------------------------------------------------------------------------

    def _words(self, one: Contestant, row: PutRow) -> str:
        """The row's line for a contestant."""
        if one.name.startswith("jar"):
            return row.jar
        return row.limit.partition(" + ")[0] if one.name == LIMIT else row.line

    def _put(self, row: PutRow, done: set[tuple[str, str]]) -> None:
        """Measure a row; rows with the same line share a contestant's figure."""
        for one in self._order():
            words = self._words(one, row)
            if (one.name, words) not in done:
                done.add((one.name, words))
                self._put_one(one, row, words, keep=False)

    def _put_resident(self) -> None:
        for one in self._field.contestants:
            if one.name == LIMIT:
                self._put_one(one, PUTS[0], RESIDENT, keep=False)

    def _put_one(self, one: Contestant, row: PutRow, words: str, *, keep: bool) -> None:
        count = self._amount(one)
        if not keep:
            count = min(count, self._field.most or count)
        step = row.step or self._part(count)
        self._remove(one)
        one.do(f"open {self._place(one)}")
        line = f"{words} 0 {count} {step}"
        answer = one.do(line)
        self._require(one, line, answer["count"], count)
        one.do("dispatched")
        self._check_end(one, words, count)
        self._note(one, words, answer, count)
        settle(self._place(one))
        if keep:
            if self._number < 2:
                check_messages(self._place(one), self._set, count)
            return
        one.do("close")
        self._remove(one)

    def _check_end(self, one: Contestant, words: str, count: int) -> None:
        """All messages are in queues, and the log ends where those of equal records end."""
        answer = one.do(f"end {QUEUES}")
        self._require(one, f"messages in queues after {words}", answer["count"], count)
        if one.name == REFERENCE or (one.name.startswith("jar") and one.name != self._field.end_of):
            return
        if "batch" in words or "put_messages" in words:
            return  # what a batch's own properties add depends on the version
        if one.name == LIMIT and not self._field.end_of.startswith("jar 5"):
            return  # its properties end with a separator
        ends = self._ends.setdefault((self._body, count), {})
        ends[one.name] = answer["end"]
        if len(set(ends.values())) > 1:
            raise WrongResultError(f"the logs end at different offsets: {ends} ({words})")

    def _part(self, count: int) -> int:
        """How many of these messages one part of a log takes."""
        return max(min(PART_NBYTES // self._set[0].nbytes, count), 1)

    # --- rows that share a store --------------------------------------------------------------

    def _share(self, family: Family) -> None:
        """Measure a family; each line puts the next messages of the set into the same stores."""
        rows = [row for row in family.rows if row.name in self._field.rows]
        if not rows:
            return
        field = [one for one in self._order() if one.name != REFERENCE]
        first = min(FIRST_COUNT, self._count // 2)
        share = (self._count - first) // len(family.lines)
        done: dict[str, int] = {}
        for one in field:
            self._remove(one)
            one.do(f"open {self._place(one)} {family.durability}")
            done[one.name] = self._put_share(one, [], family.rows[0], 0, first)
        for line in dict.fromkeys(row.line for row in rows):
            same = [row for row in rows if row.line == line]
            for one in field:
                count = min(share, same[0].most or share)
                done[one.name] += self._put_share(one, same, same[0], done[one.name], count)
        for one in field:
            self._check_end(one, family.name, done[one.name])
            one.do("close")
            self._remove(one)

    def _put_share(
        self, one: Contestant, rows: list[SharedRow], row: SharedRow, first: int, count: int
    ) -> int:
        """Do the line of ``row``, note its times for each of ``rows``; return how many were put."""
        words, step = row.line, 0
        if one.name.startswith("jar"):
            words = row.jar
        elif one.name == LIMIT:
            words, step = row.limit, row.limit_step
        if not words:
            return 0
        line = f"{words} {first} {count} {step or self._part(count)}"
        answer = one.do(line)
        self._require(one, line, answer["count"], count)
        one.do("dispatched")
        for each in rows:
            self._note(one, each.name, {**answer, "wall": answer[each.answer]}, count)
        settle(self._place(one))
        return count

    # --- questions ----------------------------------------------------------------------------

    def _ask_all(self) -> None:
        done: set[tuple[str, str]] = set()
        for row in ASKS:
            if row.name not in self._field.rows:
                continue
            for one in self._order():
                words = row.line
                if one.name.startswith("jar"):
                    words = row.jar
                elif one.name == LIMIT:
                    words = row.limit
                if words and (one.name, words) not in done:
                    done.add((one.name, words))
                    self._ask(one, row, words)

    def _ask(self, one: Contestant, row: AskRow, words: str) -> None:
        everything = self._amount(one)
        count = min(row.most or everything, everything)
        if one.name == REFERENCE and row.most:
            count = min(count, REFERENCE_ASKED)
        line = words.format(count=count, all=everything, queues=QUEUES, folder=self._place(one))
        answer = one.do(line)
        # `get_message` returns what is left of the last 32.
        wanted = everything if "{all}" in words or not row.most else count
        self._require(one, line, answer["count"], wanted)
        self._note(one, words, answer, answer["count"])

    # --- opening ------------------------------------------------------------------------------

    def _open_all(self) -> None:
        for name, work in (
            ("open_clean", self._open_clean),
            ("rebuild", self._rebuild),
            ("recover", self._recover),
        ):
            if name in self._field.rows:
                for one in self._order():
                    if one.name != REFERENCE:  # it checks the index's 5,000,000 slots one by one
                        work(one)

    def _open_clean(self, one: Contestant) -> None:
        if one.name == LIMIT:
            return
        one.do("close")
        answer = one.do(f"reopen {self._place(one)}")
        self._check_reopened(one, "open_clean")
        self._note(one, "open_clean", {**answer, "wall": answer["opened"]}, 1)

    def _rebuild(self, one: Contestant) -> None:
        if one.name != LIMIT:
            one.do("close")
        answer = one.do(f"rebuild {self._place(one)}")
        self._check_reopened(one, "rebuild")
        self._note(one, "rebuild", answer, self._amount(one))

    def _check_reopened(self, one: Contestant, what: str) -> None:
        answer = one.do(f"end {QUEUES}")
        self._require(one, f"messages in queues after {what}", answer["count"], self._amount(one))

    def _recover(self, one: Contestant) -> None:
        """Open a copy of a killed process's store; the bare loop walks its own log."""
        count = self._amount(one)
        if one.name == LIMIT:
            answer = one.do(f"reopen {self._place(one)}")
            self._require(one, "reopen", answer["count"], count)
            self._note(one, "reopen {folder}", answer, count)
            return
        image, end = self._image(one)
        one.do("close")
        copy = self._place(one).with_name("recover")
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-r", "--sparse=always", str(image), str(copy)], check=True)
        settle(copy)
        answer = one.do(f"reopen {copy}")
        after = one.do(f"end {QUEUES}")
        self._require(one, "messages in queues after recover", after["count"], count)
        self._require(one, "end of the log after recover", after["end"], end)
        self._note(one, "recover", answer, count)
        one.do("close")
        shutil.rmtree(copy)
        one.do(f"reopen {self._place(one)}")

    def _image(self, one: Contestant) -> tuple[Path, int]:
        """A store whose process was killed when all was put and dispatched; made once for a set."""
        if one.name not in self._images:
            place = self._place(one).with_name(f"image-{self._place(one).name}")
            shutil.rmtree(place, ignore_errors=True)
            other = self._field.start[one.name]()
            try:
                other.do(f"set {self._field.folder / 'set'}")
                other.do(f"open {place}")
                line = PUTS[0].jar if one.name.startswith("jar") else PUTS[0].line
                other.do(f"{line} 0 {self._amount(one)} {PUTS[0].step}")
                # 4.9 refuses a store with a queue file that was created and has no size yet.
                other.do("dispatched")
                end = other.do(f"end {QUEUES}")["end"]
            finally:
                other.kill()
            settle(place)
            self._images[one.name] = place, end
        return self._images[one.name]

    def _drop_images(self) -> None:
        for place, _ in self._images.values():
            shutil.rmtree(place, ignore_errors=True)
        self._images.clear()
