"""``rocketstore demo``: show the main features on temporary stores."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rocketstore import kernels
from rocketstore.cli.common.options import path
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import print_text
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.demo import golden as demo_golden
from rocketstore.cli.demo import spark as demo_spark
from rocketstore.store.default_message_store import open as open_store

_COUNT = 20_000
_TOPICS = ("Orders", "Payments")
_ACKNOWLEDGED_LINES = 40


def demo(
    golden: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=path,
            help="A folder with a store written by RocketMQ and its recorded answers.",
        ),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Finally count the stores with Spark (takes half a minute)."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=path,
            help="With --spark: draw the volume over time in this PNG file.",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's stores on disk.")] = False,
) -> None:
    """Write a store, query it, kill its writer, recover it, verify it; then read one of RocketMQ's.

    All files are in a temporary directory. Exit status 1 if any check fails.

    \b
    Examples:
      rocketstore demo
      rocketstore demo --golden tests/golden/plain-5.3.3
      rocketstore demo --spark --plot volume.png
    """
    if plot is not None and not spark:
        raise typer.BadParameter("--plot needs --spark")
    directory = Path(tempfile.mkdtemp(prefix="rocketstore-demo-"))
    try:
        show = Demonstration(directory)
        show.run(golden)
        if spark:
            show.count_with_spark(plot)
    finally:
        if keep:
            print_text(f"The stores are in {directory}.")
        else:
            shutil.rmtree(directory)
    if show.failures:
        print_text(f"{counted(show.failures, 'check')} failed.", style="bold red")
        raise typer.Exit(int(ExitCode.FINDINGS))
    print_text("All checks passed.", style="bold green")


class Demonstration:
    """The steps of the demo; each prints one line per check."""

    def __init__(self, directory: Path) -> None:
        self.failures = 0
        self._directory = directory
        self._root = directory / "store"
        self._stores = {"our store": self._root}

    def run(self, golden: Path | None) -> None:
        """Run all steps."""
        print_text(f"A new store, in {self._root}", style="bold")
        self._write()
        self._query()
        self._kill()
        self._reopen()
        self._verify(self._root)
        if golden is None:
            return
        print_text()
        print_text(f"A store written by RocketMQ, from {golden}", style="bold")
        self._read_golden(golden)

    def count_with_spark(self, plot: Path | None) -> None:
        """Count every store of the demo with Spark."""
        print_text()
        print_text("The same stores in Spark", style="bold")
        demo_spark.run(self._stores, plot, self._say)

    def _say(self, holds: bool, text: str) -> None:
        self.failures += not holds
        mark, style = ("  ok    ", "green") if holds else ("  FAIL  ", "bold red")
        print_text(mark + text, style=None if holds else style)

    # --- the demo's own store -----------------------------------------------------------------

    def _write(self) -> None:
        body = b"x" * 200
        with open_store(
            self._root,
            "x",
            mapped_file_size_commit_log=4 * 1024 * 1024,
            max_hash_slot_num=5000,
            max_index_num=20000,
        ) as store:
            began = time.perf_counter()
            refused = 0
            for number in range(_COUNT):
                topic, tag = _TOPICS[number % 2], f"Tag{number % 3}"
                refused += not store.put(topic, body, number % 4, tag, f"key-{number}").ok
            took = time.perf_counter() - began
            self._say(
                not refused,
                f"wrote {counted(_COUNT, 'message')}, one put each, in {took:.2f} s "
                f"({_COUNT / took:,.0f} a second)",
            )
            began = time.perf_counter()
            dispatched = store.wait_dispatched(60)
            end = store.max_physical_offset
            self._say(
                dispatched,
                f"queues and index caught up {time.perf_counter() - began:.2f} s later: "
                f"{format_size(end)} of log",
            )

    def _query(self) -> None:
        with open_store(self._root, "r") as store:
            queued = sum(
                store.max_offset_in_queue(topic, queue_id)
                for topic in store.topics()
                for queue_id in store.queues(topic)
            )
            self._say(
                queued == _COUNT, f"reopened read-only: {counted(queued, 'message')} in queues"
            )
            result = store.get_message("demo", "Orders", 0, 100, 3)
            offsets = [message.queue_offset for message in result.messages]
            self._say(
                offsets == [100, 101, 102], f"get_message at offset 100: {result.status.name}"
            )
            hits = list(store.find(topic="Payments", key="key-777"))
            self._say(
                len(hits) == 1 and hits[0].keys == "key-777",
                f"find by key: {counted(len(hits), 'message')}",
            )

    def _kill(self) -> None:
        """Start a child that writes, and kill it during a put."""
        environment = dict(os.environ)
        package = str(Path(kernels.__file__).parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join(
            [package, *filter(None, [environment.get("PYTHONPATH")])]
        )
        child = subprocess.Popen(
            [sys.executable, "-m", "rocketstore.cli.demo.writer", str(self._root)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert child.stdout is not None
        self._acknowledged: list[int] = []
        try:
            for line in child.stdout:
                self._acknowledged += map(int, line.split())
                if len(self._acknowledged) >= _ACKNOWLEDGED_LINES * 50:
                    break
        finally:
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read()
            child.wait()
        complete = rest[: rest.rfind("\n") + 1]
        self._acknowledged += map(int, complete.split())
        self._say(
            child.returncode == -signal.SIGKILL and bool(self._acknowledged),
            f"killed a writer (SIGKILL) after {len(self._acknowledged):,} acknowledged puts",
        )

    def _reopen(self) -> None:
        with open_store(self._root, "r+") as store:
            report = store.recovery_report
            torn_nbytes = sum(one.nbytes for one in report.cut)
            self._say(
                not report.clean and not report.damaged,
                f"reopened: recovery checked {counted(report.scanned_count, 'record')} and "
                f"truncated {counted(torn_nbytes, 'torn byte')}",
            )
            there = sum(
                store.look_message_by_offset(offset) is not None for offset in self._acknowledged
            )
            self._say(
                there == len(self._acknowledged),
                f"{there:,} of {len(self._acknowledged):,} acknowledged messages are readable",
            )
            result = store.put("Orders", b"and it goes on", 0, keys="after-the-kill")
            self._say(
                result.ok, f"put again: {result.status.name} at log offset {result.physical_offset}"
            )

    def _verify(self, root: Path) -> None:
        with open_store(root, "r") as store:
            report = store.verify()
        self._say(
            report.ok,
            f"verified {counted(report.records, 'record')}, {counted(report.units, 'queue unit')} "
            f"and {counted(report.keys, 'index entry', 'index entries')}: "
            f"{counted(report.finding_count, 'finding')}",
        )
        for finding in report.findings[:10]:
            print_text(f"          {finding.path} at {finding.position}: {finding.reason}")

    # --- RocketMQ's store ---------------------------------------------------------------------

    def _read_golden(self, golden: Path) -> None:
        root = demo_golden.unpack(golden, self._directory / "golden")
        self._stores[f"RocketMQ's {golden.name}"] = root
        asked: Counter[str] = Counter()
        same: Counter[str] = Counter()
        with open_store(root, "r") as store:
            version = f"{store.broker_version}: {store.facts.dialect_reason}"
            self._say(True, f"opened; likely RocketMQ {version}")
            for ask, answer in demo_golden.questions(golden):
                asked[ask["op"]] += 1
                same[ask["op"]] += demo_golden.is_answered(store, ask, answer)
        for name, count in sorted(asked.items()):
            self._say(same[name] == count, f"{name}: {same[name]} of {count} recorded answers")
        total = sum(asked.values())
        self._say(
            bool(total) and same == asked,
            f"{sum(same.values())} of {total} recorded questions got RocketMQ's answer",
        )
        self._verify(root)
