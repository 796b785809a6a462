"""Shutdowns of real file systems under load: ``make powercut-real CUTS= SEED=``.

A writer puts messages into a store on an ext4 or xfs of its own until the kernel shuts that file
system down. It is mounted again, the store is opened and judged, and the next writer goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore
from crash.campaigns import Ticker, finish, scratch_folder
from crash.real_file_system import KINDS, SHUTDOWNS, FileSystem, ImpossibleError
from rocketstore import Message, RocketStoreError, testing
from rocketstore.testing import check_invariants

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 300,
    "max_index_num": 1200,
    "flush_interval_commit_log": 5,
    "flush_commit_log_least_pages": 0,
    "flush_interval_consume_queue": 5,
    "flush_consume_queue_least_pages": 0,
    "flush_consume_queue_thorough_interval": 40,
    "transient_store_pool_size": 2,
}
MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {"flush_disk_type": "ASYNC_FLUSH"},
    "pool-sync": {"flush_disk_type": "SYNC_FLUSH", "transient_store_pool_enable": True},
    "pool-async": {"flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_enable": True},
}
#: Cuts of one store; then a fresh file system is made.
CUTS_PER_STORE = 8


def write_until_shutdown(root: Path, mode: str, seed: int, writing: int) -> None:
    """Put and print: ``offset nbytes body`` of each message, ``flushed offset`` now and then."""
    choose = random.Random(seed)
    store = rocketstore.open(root, "a", **OPTIONS, **MODES[mode])
    os.write(writing, b"open\n")
    for number in itertools.count():
        bodies = [
            b"%d-%d-" % (seed, number + part) + b"x" * choose.choice((0, 30, 400, 2000))
            for part in range(choose.choice((1, 1, 1, 20)))
        ]
        drafts = [
            Message("Orders", body, queue_id=choose.randrange(3), properties={"KEYS": "k shared"})
            for body in bodies
        ]
        results = store.put_many(drafts)
        lines = [
            b"%d %d %s\n" % (result.physical_offset, result.nbytes, body)
            for body, result in zip(bodies, results, strict=True)
            if result.ok and result.physical_offset is not None
        ]
        os.write(writing, b"".join(lines) + b"flushed %d\n" % store.flushed_offset)
        if MODES[mode]["flush_disk_type"] == "ASYNC_FLUSH":
            time.sleep(choose.choice((0, 0, 0.002)))


class Answers:
    """What the writers of one store acknowledged."""

    def __init__(self, mode: str) -> None:
        self.rows: dict[int, tuple[int, bytes]] = {}
        self.flushed = 0
        self._is_sync = MODES[mode]["flush_disk_type"] == "SYNC_FLUSH"

    def take(self, output: bytes) -> None:
        """Add the output of one writer."""
        for line in output.split(b"\n")[:-1]:
            if line == b"open" or line.startswith(b"error "):
                continue
            first, rest = line.split(b" ", 1)
            if first == b"flushed":
                self.flushed = max(self.flushed, int(rest))
                continue
            nbytes, body = rest.split(b" ", 1)
            self.rows[int(first)] = int(nbytes), body

    def acknowledged(self) -> list[testing.Acknowledged]:
        """What must be there after a shutdown."""
        return [
            testing.Acknowledged(offset, "Orders", None, None, body, ("k", "shared"))
            for offset, (nbytes, body) in self.rows.items()
            if self._is_sync or offset + nbytes <= self.flushed
        ]

    def forget_after(self, end: int) -> None:
        """The log ends at ``end`` now: what was past it was never confirmed, and is gone."""
        self.rows = {offset: row for offset, row in self.rows.items() if offset < end}
        self.flushed = min(self.flushed, end)


def judge(root: Path, answers: Answers, mode: str) -> int:
    """Open the store for writing; everything confirmed is there, and all of it is sound."""
    promised = answers.acknowledged()
    if not root.exists() and not promised:
        return 0
    with rocketstore.open(root, "a", **OPTIONS, **MODES[mode]) as store:
        report = store.recovery_report
        assert not report.damaged, report
        assert not report.gaps, report
        assert store.max_physical_offset >= answers.flushed, (
            store.max_physical_offset,
            answers.flushed,
        )
        for message in store.scan():
            row = answers.rows.get(message.physical_offset)
            assert row is None or row[1] == message.body, f"other bytes at {message}"
        end = store.max_physical_offset
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    check_invariants(root, acknowledged=promised, clock_steps=True).require()
    return end


def in_child(work: Callable[[int], Any]) -> tuple[int, int]:
    """Fork; the child runs ``work(descriptor)``. Returns its pid and the end to read from."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    status = 1
    try:
        os.close(reading)
        work(writing)
        status = 0
    except (RocketStoreError, OSError) as error:
        status = 3  # what a writer meets when the power goes
        os.write(writing, f"error {error!r}\n".encode())
    except BaseException:  # noqa: BLE001 - printed for the parent
        os.write(writing, b"BROKEN " + traceback.format_exc().encode())
    finally:
        os._exit(status)


def read_all(reading: int) -> bytes:
    """Everything up to the end of the pipe."""
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read()


class Rounds:
    """One store on one file system, which is shut down repeatedly."""

    def __init__(self, system: FileSystem, mode: str, choose: random.Random) -> None:
        self.system = system
        self.mode = mode
        self.answers = Answers(mode)
        #: Acknowledged messages that were looked for, over all shutdowns.
        self.promised = 0
        self._choose = choose
        self._root = system.place / "store"

    def shut_down_once(self, how: str) -> str:
        """Write, shut down, mount, judge; return what is broken, or nothing."""
        seed = self._choose.randrange(1 << 30)
        child, reading = in_child(
            lambda writing: write_until_shutdown(self._root, self.mode, seed, writing)
        )
        output = self._output_until(reading, self._choose.choice((0.0, 0.01, 0.03, 0.1)))
        self.system.shut_down(how)
        os.kill(child, signal.SIGKILL)
        output += read_all(reading)
        os.waitpid(child, 0)
        if b"BROKEN" in output:
            return output.decode(errors="replace")
        self.answers.take(output)
        self.promised += len(self.answers.acknowledged())
        self.system.unmount()
        self.system.mount()
        return self._judge()

    def _output_until(self, reading: int, delay_s: float) -> bytes:
        """The writer's output up to ``delay_s`` after a moment: its start, or its opening."""
        output = b""
        waits = self._choose.random() < 0.8
        deadline = time.monotonic() + (120.0 if waits else delay_s)
        os.set_blocking(reading, False)
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                part = os.read(reading, 1 << 16)
                if not part:
                    return output + b"BROKEN: it ended before the power did\n"
                output += part
            if waits and b"open\n" in output:
                waits, deadline = False, time.monotonic() + delay_s
            time.sleep(0.001)
        os.set_blocking(reading, True)
        return output

    def _judge(self) -> str:
        def work(writing: int) -> None:
            end = judge(self._root, self.answers, self.mode)
            os.write(writing, b"%d" % end)

        child, reading = in_child(work)
        answer = read_all(reading)
        _, status = os.waitpid(child, 0)
        if status or not answer.isdigit():
            return f"status {status}: {answer.decode(errors='replace')}"
        self.answers.forget_after(int(answer))
        return ""


class Cut(NamedTuple):
    """One shutdown: where and how, acknowledged messages that were checked, and what was broken
    (empty: nothing)."""

    kind: str
    mode: str
    how: str
    promised: int
    broken: str


def run(shutdowns: int, seed: int, kinds: list[str]) -> Iterator[Cut]:
    """Cut the power so many times, a store ``CUTS_PER_STORE`` times.

    Raises ``ImpossibleError`` where such file systems cannot be made.
    """
    choose = random.Random(seed)
    done = 0
    for number in itertools.count():
        kind = kinds[number % len(kinds)]
        mode = list(MODES)[number // len(kinds) % len(MODES)]
        with scratch_folder("real") as scratch, FileSystem(scratch, kind) as system:
            rounds = Rounds(system, mode, choose)
            for _ in range(min(CUTS_PER_STORE, -(-shutdowns // len(kinds)))):
                how = choose.choice(list(SHUTDOWNS))
                before = rounds.promised
                broken = rounds.shut_down_once(how)
                yield Cut(kind, mode, how, rounds.promised - before, broken)
                done += 1
                if done == shutdowns:
                    return
                if broken:
                    break


def main(arguments: list[str] | None = None) -> int:
    """Cut the power so many times; print what was done, and every broken promise."""
    parser = argparse.ArgumentParser(prog="crash.real_power_cut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--report", type=Path, help="write the counts to this JSON file")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    print(f"--seed {seed}", flush=True)
    began, counts, broken, promised = time.monotonic(), Counter[str](), 0, 0
    ticker = Ticker("cuts", options.cuts)
    try:
        for one in run(options.cuts, seed, options.kinds):
            counts[f"{one.kind} {one.mode} {one.how}"] += 1
            promised += one.promised
            if one.broken:
                broken += 1
                print(f"BROKEN {one.kind} {one.mode} {one.how}: {one.broken}", flush=True)
            ticker.report(counts.total(), broken)
    except ImpossibleError as error:
        print(f"no shutdown of file systems on this machine: {error}")
        return 2
    summary = {
        "cuts": counts.total(),
        "counts": dict(sorted(counts.items())),
        "acknowledged": promised,
        "seed": seed,
        "kernel": os.uname().release,
        "version": rocketstore.__version__,
        "broken": broken,
        "seconds": round(time.monotonic() - began, 1),
    }
    return finish(summary, options.report)


if __name__ == "__main__":
    sys.exit(main())
