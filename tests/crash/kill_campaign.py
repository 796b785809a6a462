"""Writers killed with SIGKILL at random moments; nothing that was acknowledged may be missing.

    python tests/crash/kill_campaign.py --kills 20000 --seed 1 --rocketmq 5.3.3

A life is a child process, forked off before anything is opened, that opens the store and puts
messages, expires segments, or is killed while it opens. The same store is killed several times, one
life in six without a look at it in between. After each look: every acknowledged message that has
not expired is in the log, in its queue and under its key, ``verify`` finds nothing, and
``check_invariants`` reads the files by other code. With ``--rocketmq`` every tenth directory is
opened, as the kill left it, by the real RocketMQ too, which must show all of them.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rocketstore
import rocketstore.verify.check
from crash.campaigns import Ticker, finish, scratch_folder
from crash.writer import OPTIONS, Writer
from interop.maven import lacks_java
from rocketstore import testing

if TYPE_CHECKING:
    from interop.harness import Driver

#: Kills of one store before a fresh one is begun.
LIVES = 8
ROCKETMQ_EVERY = 10
#: Stores for one Java process: after more than 800 it loads no further one.
PER_PROCESS = 200
DEADLINE_S = 300.0
BLIND_SHARE = 1 / 6


class Flavour(NamedTuple):
    """How a store is written."""

    name: str
    options: dict[str, Any]
    #: Whether what is acknowledged outlives the process.
    keeps: bool = True


FLAVOURS = (
    Flavour("sync", {"flush_disk_type": "SYNC_FLUSH"}),
    Flavour("async", {"flush_disk_type": "ASYNC_FLUSH"}),
    Flavour("sync-pool", {"flush_disk_type": "SYNC_FLUSH", "transient_store_pool_enable": True}),
    Flavour(
        "async-pool",
        {"flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_enable": True},
        keeps=False,
    ),
    Flavour("cleaning", {"flush_disk_type": "ASYNC_FLUSH", "file_reserved_time": 0}),
)


class Row(NamedTuple):
    """One acknowledged message."""

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body: str
    key: str


class Life(NamedTuple):
    """What became of one child: its acknowledgements, and whether it had opened the store."""

    rows: list[Row]
    opened: bool


def live(root: Path, flavour: Flavour, seed: int, fd: int) -> None:
    """The child's part: write until killed."""
    store = rocketstore.open(root, "a", **OPTIONS, **flavour.options)
    os.write(fd, b"open\n")
    os.dup2(fd, 1)  # where the writer prints its acknowledged messages
    step = store.clean_expired if flavour.name == "cleaning" else None
    Writer(store, seed).run(step)


def kill_one(root: Path, flavour: Flavour, chance: random.Random, seed: int) -> Life:
    """Let a child live for a while and kill it; one in five dies while it opens the store."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(lambda: live(root, flavour, seed, writing))
    os.close(writing)
    opening = chance.random() < 0.2
    delay_s = chance.random() * (0.012 if opening else chance.choice((0.002, 0.02, 0.05)))
    collected, opened = bytearray(), False
    began = time.monotonic()
    deadline = began + (delay_s if opening else DEADLINE_S)
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            chunk = os.read(reading, 1 << 16)
            if not chunk:
                raise AssertionError(f"the writer ended by itself: {os.waitpid(child, 0)}")
            collected += chunk
        if not opened and collected.startswith(b"open\n"):
            opened = True
            deadline = deadline if opening else time.monotonic() + delay_s
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while chunk := os.read(reading, 1 << 16):
        collected += chunk
    os.close(reading)
    if not opened and not opening:
        raise AssertionError(f"the writer did not open the store within {DEADLINE_S} s")
    return Life(_rows(collected), collected.startswith(b"open\n"))


def _run_child(job: Callable[[], None]) -> None:
    """Do ``job`` in a forked child and end it: 0, or 1 with a traceback on stderr."""
    try:
        job()
    except BaseException:  # noqa: BLE001 - the parent asserts on the status
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _rows(collected: bytes) -> list[Row]:
    lines = collected.split(b"\n")[:-1]  # what follows the last line end was never acknowledged
    split = (line.decode().split("\t") for line in lines if line != b"open")
    return [Row(int(o), topic, int(q), int(n), body, key) for o, topic, q, n, body, key in split]


# --- looking ------------------------------------------------------------------------------------


def look(root: Path, flavour: Flavour, rows: list[Row], counts: Path) -> None:
    """Open a killed store for writing and compare it with what was acknowledged."""
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        report = store.recovery_report
        assert not report.damaged, report.damaged
        assert not report.gaps, report.gaps
        minimum, end = max(store.min_physical_offset, 0), store.max_physical_offset
        assert flavour.name == "cleaning" or minimum == 0, minimum
        if not flavour.keeps:
            rows = [row for row in rows if row.offset < end]
        rows = [row for row in rows if row.offset >= minimum]
        check_rows(store, rows)
        assert store.wait_dispatched(DEADLINE_S)
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    promises = [
        testing.Acknowledged(
            r.offset, r.topic, r.queue_id, r.queue_offset, r.body.encode(), (r.key,)
        )
        for r in rows
    ]
    testing.check_invariants(root, acknowledged=promises, clock_steps=True, reopen=False).require()
    counts.write_text(f"{len(rows)} {report.scanned_count}")


def check_rows(store: rocketstore.DefaultMessageStore, rows: list[Row]) -> None:
    """Every message is in the log, in its queue, and found by its key."""
    units = {
        (topic, queue_id): {
            store.min_offset_in_queue(topic, queue_id) + number: int(offset)
            for number, offset in enumerate(store.queue_view(topic, queue_id)["physical_offset"])
        }
        for topic, queue_id in {(row.topic, row.queue_id) for row in rows}
    }
    for row in rows:
        message = store.look_message_by_offset(row.offset)
        assert message is not None, f"the acknowledged message at {row.offset} is gone"
        reported = (message.topic, message.queue_id, message.queue_offset, message.body.decode())
        assert reported == row[1:5], (reported, row)
        assert units[row.topic, row.queue_id].get(row.queue_offset) == row.offset, row
    for topic in {row.topic for row in rows}:
        of_topic = [row for row in rows if row.topic == topic]
        offsets, splits = store.index_offsets(topic, [row.key for row in of_topic])
        for number, row in enumerate(of_topic):
            found = offsets[splits[number] : splits[number + 1]]
            assert row.offset in found.tolist(), f"key {row.key} does not find {row.offset}"


def look_in_child(root: Path, flavour: Flavour, rows: list[Row], counts: Path) -> bool:
    """``look`` in a process of its own, so that this one never has a store open."""
    child = os.fork()
    if child == 0:
        _run_child(lambda: look(root, flavour, rows, counts))
    return os.waitpid(child, 0)[1] == 0


class RocketMQ:
    """Opens directories as kills left them with the real RocketMQ."""

    def __init__(self, version: str, scratch: Path) -> None:
        self.opened = 0
        self._version = version
        self._scratch = scratch
        self._driver = self._start()

    def _start(self) -> Driver:
        from interop.harness import Driver

        return Driver(self._version, self._scratch)

    def check(self, root: Path, rows: list[Row]) -> None:
        """Open ``root``; every row must be shown in its queue."""
        name = root.name
        config = {
            "mappedFileSizeCommitLog": str(OPTIONS["mapped_file_size_commit_log"]),
            "mappedFileSizeConsumeQueue": str(OPTIONS["mapped_file_size_consume_queue"]),
            "maxHashSlotNum": str(OPTIONS["max_hash_slot_num"]),
            "maxIndexNum": str(OPTIONS["max_index_num"]),
            "timerWheelEnable": "false",
            "diskMaxUsedSpaceRatio": "99",
        }
        assert self._driver.open(name, root, config).result()["load"], f"{root} is not loaded"
        asked = [{"op": "wait"}, {"op": "dumpall"}]
        answer = self._driver.ask(name, asked).result()["answers"][1]
        # It may show other records beside: for a unit with log offset 0 that outlived its segment
        # it takes what the first segment begins with.
        shown = {
            (queue["topic"], queue["queueId"], item["queueOffset"], item["offset"])
            for queue in answer.get("queues", ())
            for item in queue["messages"]
        }
        for row in rows:
            place = (row.topic, row.queue_id, row.queue_offset, row.offset)
            assert place in shown, f"RocketMQ does not show {row}"
        self._driver.close([name])
        self.opened += 1
        if self.opened % PER_PROCESS == 0:
            self._driver.halt()
            self._driver = self._start()

    def halt(self) -> None:
        """End the Java process."""
        self._driver.halt()


def import_all(root: Path) -> None:
    """Do once, without a thread, what children do: they find everything imported."""
    with rocketstore.open(root, "x", start=False, **OPTIONS) as store:
        assert store.put("Warm", b"body", 0, None, "key").ok
        store.flush()
        store.verify()
    testing.check_invariants(root, reopen=False).require()
    shutil.rmtree(root)


class Campaign:
    """Kills stores one after another."""

    def __init__(self, scratch: Path, seed: int, rocketmq: RocketMQ | None, ticker: Ticker) -> None:
        self._scratch = scratch
        self._ticker = ticker
        self._chance = random.Random(seed)
        self._rocketmq = rocketmq
        self.counts: Counter[str] = Counter()

    def run(self, kills: int) -> None:
        """Kill so often. Raises ``AssertionError`` that names the store when a promise broke."""
        while self.counts["kills"] < kills:
            number = self.counts["stores"]
            flavour = FLAVOURS[number % len(FLAVOURS)]
            self.counts["stores"] += 1
            root = self._scratch / f"store-{number:06d}-{flavour.name}"
            try:
                self._wear_out(root, flavour, min(LIVES, kills - self.counts["kills"]))
            except Exception as error:
                raise AssertionError(f"kill {self.counts['kills']}, {root}: {error}") from error
            shutil.rmtree(root, ignore_errors=True)
            self._ticker.report(self.counts["kills"])

    def _wear_out(self, root: Path, flavour: Flavour, lives: int) -> None:
        rows: list[Row] = []
        for life in range(lives):
            done = kill_one(root, flavour, self._chance, self.counts["kills"])
            self.counts["kills"] += 1
            self.counts[f"kills of {flavour.name}"] += 1
            self.counts["kills while opening"] += not done.opened
            self.counts["acknowledged"] += len(done.rows)
            rows += done.rows
            if not root.exists():
                continue  # killed before it made anything
            if life < lives - 1 and flavour.keeps and self._chance.random() < BLIND_SHARE:
                self.counts["kills in a row"] += 1
                continue
            copy = self._scratch / f"copy-{self.counts['kills']}"
            due = self.counts["kills"] // ROCKETMQ_EVERY > self.counts["for RocketMQ"]
            if self._rocketmq is not None and due and flavour.keeps:
                shutil.copytree(root, copy)
            rows = self._look(root, flavour, rows)
            if copy.exists():
                assert self._rocketmq is not None
                self.counts["for RocketMQ"] += 1
                self._rocketmq.check(copy, rows)
                shutil.rmtree(copy)

    def _look(self, root: Path, flavour: Flavour, rows: list[Row]) -> list[Row]:
        """Look; return the rows that must be there from now on."""
        note = self._scratch / "looked"
        assert look_in_child(root, flavour, rows, note), "see the traceback above"
        found, _ = map(int, note.read_text().split())
        self.counts["messages looked for"] += found
        self.counts["looks"] += 1
        if flavour.keeps and flavour.name != "cleaning":
            assert found == len(rows)
            return rows
        with rocketstore.open(root, derive="none") as store:
            low, high = max(store.min_physical_offset, 0), store.max_physical_offset
        return [row for row in rows if low <= row.offset < high]


def main() -> int:
    """Run a campaign; 0 when every promise held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--rocketmq", metavar="VERSION", help="open every tenth with it, too")
    parser.add_argument("--keep", type=Path, help="where to leave the store that broke a promise")
    parser.add_argument("--report", type=Path, help="write the counts to this JSON file")
    options = parser.parse_args()
    if options.rocketmq and (reason := lacks_java()):
        print(f"{reason}; or leave RocketMQ out (`make kills ROCKETMQ=`)", file=sys.stderr)
        return 2
    began, broken = time.monotonic(), 0
    print(f"--seed {options.seed}", flush=True)
    with scratch_folder("kills") as scratch:
        rocketmq = RocketMQ(options.rocketmq, scratch / "java") if options.rocketmq else None
        campaign = Campaign(scratch, options.seed, rocketmq, Ticker("kills", options.kills))
        import_all(scratch / "warm")
        try:
            campaign.run(options.kills)
        except AssertionError as error:
            broken = 1
            print(f"BROKEN --seed {options.seed}: {error}", file=sys.stderr)
            if options.keep is not None:
                shutil.copytree(scratch, options.keep, dirs_exist_ok=True)
        finally:
            if rocketmq is not None:
                rocketmq.halt()
    summary = {
        **campaign.counts,
        "rocketmq": options.rocketmq,
        "opened by rocketmq": rocketmq.opened if rocketmq is not None else 0,
        "seed": options.seed,
        "kernels": rocketstore.kernels.name,
        "version": rocketstore.__version__,
        "broken": broken,
        "seconds": round(time.monotonic() - began, 1),
    }
    return finish(summary, options.report)


if __name__ == "__main__":
    sys.exit(main())
