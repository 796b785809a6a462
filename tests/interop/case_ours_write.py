"""We write, close in order or are killed; RocketMQ opens the store, and then we do again."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import rocketstore
from interop import ours
from interop.asking import Written, make_questions
from interop.case_java_writes import (
    STORES_PER_HALT,
    check_acknowledged,
    questions_after_crash,
    queues_of,
)
from interop.cases import (
    Answers,
    Asked,
    Outcome,
    ask_java,
    ask_ours,
    changed,
    check_opening,
    copy,
    habits,
    parts,
    touched,
)
from interop.comparing import compare
from interop.harness import DEADLINE_S, Driver, line_of
from interop.index_files import is_last_again
from interop.workload import Job

HERE = Path(__file__).resolve().parent


def _write(job: Job, root: Path, options: Mapping[str, Any]) -> Answers:
    with ours.Writing(root, "x", job, **options) as writing:
        answers = writing.run(job.script)
        assert writing.store.wait_dispatched(DEADLINE_S)
    return answers


def clean(version: str, jobs: Sequence[Job], scratch: Path, **options: Any) -> list[Outcome]:
    """Written and closed by us, with ``options``: RocketMQ answers as we do and changes no byte of
    it."""
    roots = [scratch / job.name / "store" for job in jobs]
    for root in roots:
        root.parent.mkdir(parents=True)
    with ThreadPoolExecutor(len(jobs)) as pool:
        written = list(pool.map(_write, jobs, roots, itertools.repeat(options)))
    rows = []
    for job, root, answers in zip(jobs, roots, written, strict=True):
        questions = make_questions(
            list(zip(job.script, answers, strict=True)), job.seed, timed_keys=True
        )
        item = Asked(job, root, questions)
        rows.append((Outcome(job), item, ask_ours(root, "r", item), parts(root)))
    with Driver(version, scratch) as driver:
        opened = [
            driver.open(item.job.name, item.root, item.job.config, item.job.feature.topics)
            for _, item, _, _ in rows
        ]
        for (outcome, item, mine, _), pending in zip(rows, opened, strict=True):
            if not pending.result()["load"]:
                outcome.found.fail("RocketMQ does not load the store")
                continue
            theirs = driver.ask(item.job.name, item.questions).result()["answers"]
            label = "closed by rocketstore, before RocketMQ"
            rules = habits(item.job)
            outcome.found.add(compare(item.questions, theirs, mine, label, **rules))
        driver.close(item.job.name for _, item, _, _ in rows)
    for outcome, item, mine, before in rows:
        _compare_files(outcome, before, parts(item.root))
        for mode in ("r", "r+"):
            by_4 = line_of(item.job.version) < 5
            label = "after RocketMQ closed it"
            check_opening(outcome, item, item.root, mode, mine, label, adds_last=by_4)
    return [outcome for outcome, _, _, _ in rows]


def _compare_files(
    outcome: Outcome, before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> None:
    """Nothing is changed, but for the last record's keys, which 4.9 may put once more (D-4)."""
    names = changed(before, after)
    only_index = bool(names) and all(name.startswith("index/") for name in names)
    slots = int(outcome.job.config["maxHashSlotNum"])
    if only_index and line_of(outcome.job.version) < 5 and is_last_again(before, after, slots):
        outcome.found.know("D-4")
        return
    for name in names:
        outcome.found.fail(f"RocketMQ changed {name}")


def killed(version: str, jobs: Sequence[Job], scratch: Path) -> list[Outcome]:
    """Written by us until the process is killed: RocketMQ keeps every acknowledged message."""
    outcomes = []
    for start in range(0, len(jobs), STORES_PER_HALT):
        group = jobs[start : start + STORES_PER_HALT]
        folder = scratch / f"kill-{start}"
        lag = start // STORES_PER_HALT % 2 == 1
        written = write_and_kill(group, folder, lag=lag)
        outcomes += _after_kill(version, group, folder, written)
    return outcomes


def write_and_kill(jobs: Sequence[Job], scratch: Path, *, lag: bool) -> list[list[Written]]:
    """Write in a process that is killed amid its writes; return what it acknowledged."""
    pick = random.Random(f"kill {jobs[0].seed} {len(jobs[0].script)}")
    threshold = pick.randrange(sum(len(job.script) for job in jobs) * 7 // 8) + 1
    plan = []
    for job in jobs:
        root = scratch / job.name / "store"
        root.parent.mkdir(parents=True)
        plan.append(
            {
                "root": str(root),
                "seed": job.seed,
                "version": job.version,
                "feature": job.feature.name,
                "config": job.config,
                "script": job.script,
                "lag": lag,
            }
        )
    path = scratch / "plan.json"
    path.write_text(json.dumps(plan))
    acknowledged: list[list[Written]] = [[] for _ in jobs]
    for row in _until_killed(path, threshold):
        job = jobs[row["job"]]
        done = acknowledged[row["job"]]
        done.append((job.script[len(done)], row["answer"]))
    return acknowledged


def _until_killed(plan: Path, threshold: int) -> list[dict[str, Any]]:
    """Run the writer until ``threshold`` writes are acknowledged; return all it acknowledged."""
    source = Path(rocketstore.__file__).parents[1]
    search = os.pathsep.join((str(source), str(HERE.parent)))
    with (
        open(plan.with_suffix(".stderr"), "w+") as errors,
        subprocess.Popen(
            [sys.executable, str(HERE / "writer.py"), str(plan)],
            env={**os.environ, "PYTHONPATH": search},
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        watch = threading.Timer(DEADLINE_S, process.kill)
        watch.start()
        began, rows = time.monotonic(), []
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break
            rows.append(json.loads(line))
            if len(rows) == threshold:
                process.kill()
        watch.cancel()
        process.wait()
        errors.seek(0)
        text = errors.read()
    if len(rows) < threshold or text:
        raise RuntimeError(
            f"the writer acknowledged {len(rows)} of {threshold} writes in "
            f"{time.monotonic() - began:.0f} s: {text[-2000:]}"
        )
    return rows


def _after_kill(
    version: str, jobs: Sequence[Job], scratch: Path, written: Sequence[list[Written]]
) -> list[Outcome]:
    asked = []
    for job, acknowledged in zip(jobs, written, strict=True):
        root = scratch / job.name / "store"
        asked.append(Asked(job, copy(root, "java"), questions_after_crash(job, acknowledged)))
    theirs = ask_java(version, asked, scratch)
    outcomes = []
    for item, their, acknowledged in zip(asked, theirs, written, strict=True):
        outcome = Outcome(item.job)
        root = item.root.parent / "store"
        by_mtime = item.job.version < "5"
        rules = {"crashed": True, "touched": touched(root, item.root) if by_mtime else set()}
        check_opening(outcome, item, root, "r", their, "killed", **rules)
        if by_mtime:
            rules["touched"] |= set(queues_of(item.questions))
        check_opening(outcome, item, copy(root, "writable"), "r+", their, "killed", **rules)
        if their is not None:
            check_acknowledged(outcome, item, acknowledged, their, "RocketMQ")
        outcomes.append(outcome)
    return outcomes
