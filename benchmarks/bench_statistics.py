"""What statistics add to a put and a get, in ns, and what it costs to ask for them."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore

ROOT = Path(__file__).resolve().parents[1]
BODY = bytes(100)
ROUNDS, CALLS = 300, 2_000
OPTIONS = {"mapped_file_size_commit_log": 1 << 28, "broker_version": "5.5.0"}

#: Each loop is timed with and without what a call pays; what the compiler might drop stays.
PROGRAM = r"""
#include <stdio.h>
#include "rs_times.h"

#define KEEP(value) __asm__ volatile("" : : "r,m"(value) : "memory")
enum { CALLS = 50000000 };

static double ns_since(int64_t begin) { return (double)(rs_monotonic_ns() - begin) / CALLS; }

int main(void)
{
    rs_times times = {0};
    int64_t begin = rs_monotonic_ns(), longest_ms = 0, sampled = 0;
    for (int64_t n = 0; n < CALLS; n++) {
        rs_timed call = {0};
        KEEP(&call);
    }
    const double empty = ns_since(begin);
    begin = rs_monotonic_ns();
    for (int64_t n = 0; n < CALLS; n++) {
        rs_timed call = {0};
        rs_times_begin(&times, &call, 0);
        KEEP(&call);
        if (call.begin_ns != 0) {
            sampled += rs_elapsed_ms(call.begin_ns, &times.longest_ms) + 1;
        }
    }
    const double put = ns_since(begin) - empty;
    begin = rs_monotonic_ns();
    for (int64_t n = 0; n < CALLS; n++) {
        const int64_t begin_ns = rs_sampled_ns(n);
        KEEP(begin_ns);
        if (begin_ns != 0) {
            rs_elapsed_ms(begin_ns, &longest_ms);
        }
    }
    printf("%.2f %.2f %.5f\n", put, ns_since(begin) - empty, (double)sampled / CALLS);
    return 0;
}
"""


def ns_per_call(work: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        work()
    return (time.perf_counter_ns() - begin) / CALLS


def added_ns(bare: Callable[[], object], counted: Callable[[], object]) -> tuple[float, float]:
    """Return the median of a bare call, and of what the counted one takes longer, in ns.

    Both take turns and change places, so that neither has the warmer cache.
    """
    times, differences = [], []
    for number in range(ROUNDS):
        if number % 2:
            one, other = ns_per_call(bare), ns_per_call(counted)
        else:
            other, one = ns_per_call(counted), ns_per_call(bare)
        times.append(one)
        differences.append(other - one)
    return statistics.median(times), statistics.median(differences)


def test_of_a_put(tmp_path: Path) -> None:
    """A put whose caller waits for itself is not timed; else both do the same."""
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS, start=False) as store:
        put = store.put

        def own(_: int) -> int:
            return 0

        bare, added = added_ns(
            lambda: put("T", BODY, wait_store_msg_ok=False, _wait=own),
            lambda: put("T", BODY, wait_store_msg_ok=False, _wait=None),
        )
    print(f"\na put of 100 bytes: {bare:.0f} ns without times, {added:+.1f} ns with them")


def test_of_the_choice_alone(tmp_path: Path) -> None:
    """The code that chooses and times calls, in a loop of its own."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, program = tmp_path / "times.c", tmp_path / "times"
    source.write_text(PROGRAM)
    folders = [f"-I{ROOT / 'src' / '_native' / name}" for name in ("base", "files")]
    subprocess.run(
        [*compiler.split(), "-O2", *folders, str(source), "-o", str(program), "-pthread"],
        check=True,
    )
    runs = [
        [float(word) for word in subprocess.check_output([program], text=True).split()]
        for _ in range(5)
    ]
    put, get, share = (statistics.median(values) for values in zip(*runs, strict=True))
    print(f"\na put: {put:.1f} ns, one of {1 / share:.0f} timed; a get: {get:.1f} ns")


def test_of_asking(tmp_path: Path) -> None:
    """``stats()``, and a scrape after 10,000 puts, of a store with 100 queues."""
    from rocketstore.metrics import StoreCollector, exposition

    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        for number in range(10_000):
            store.put(f"T{number % 10}", BODY, number // 10 % 10)
        store.wait_dispatched()
        collector = StoreCollector(store)
        times = []
        store.stats()  # what it imports
        for work in (store.stats, lambda: exposition(collector), lambda: exposition(collector)):
            begin = time.perf_counter()
            work()
            times.append((time.perf_counter() - begin) * 1000)
    print(
        "\nstats(): {:.2f} ms; the first scrape, which reads 10,000 records: {:.2f} ms; "
        "the next: {:.2f} ms".format(*times)
    )
