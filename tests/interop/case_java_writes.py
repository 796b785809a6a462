"""RocketMQ writes, stops in order or is halted; we open, and write the same script again."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rocketstore
from interop import ours
from interop.asking import Question, Written, make_questions
from interop.cases import (
    Answers,
    Asked,
    Outcome,
    ask_java,
    changed,
    check_opening,
    copy,
    parts,
    touched,
    without_empty_files,
)
from interop.comparing import shown
from interop.harness import Driver
from interop.index_files import is_named_twice, parsed
from interop.workload import Job, Op, for_java
from support.directory import files_below

#: Stores that one halt leaves as crash images.
STORES_PER_HALT = 5
#: Seconds until the writes that a halt waits for are acknowledged.
DEADLINE_S = 240.0


def java_script(job: Job) -> list[Op]:
    """The script of ``job`` as RocketMQ's bare store is given it."""
    return [for_java(op, job.version) for op in job.script]


def unlisted_queues(job: Job) -> list[tuple[str, int]] | None:
    """All queues that the script of ``job`` writes to, where RocketMQ itself lists none."""
    if job.feature.name != "rocksdb":
        return None
    return sorted({(op["topic"], op["queueId"]) for op in java_script(job) if "topic" in op})


def write_and_close(version: str, jobs: Sequence[Job], scratch: Path) -> list[Answers]:
    """Let RocketMQ do all scripts and shut down in order; return its answers."""
    with Driver(version, scratch) as driver:
        for job in jobs:
            driver.open(job.name, scratch / job.name / "store", job.config, job.feature.topics)
        pending = [driver.script(job.name, java_script(job)) for job in jobs]
        answers = [item.result()["answers"] for item in pending]
        for waiting in [driver.ask(job.name, [{"op": "wait"}]) for job in jobs]:
            waiting.result()
        driver.close(job.name for job in jobs)
    return answers


def clean(version: str, jobs: Sequence[Job], scratch: Path) -> list[Outcome]:
    """Written and closed by RocketMQ: equal answers, no byte changed, the same bytes from us."""
    written = write_and_close(version, jobs, scratch)
    asked, rows = [], []
    for job, answers in zip(jobs, written, strict=True):
        root = scratch / job.name / "store"
        pairs = list(zip(java_script(job), answers, strict=True))
        queues = unlisted_queues(job)
        questions = make_questions(pairs, job.seed, timed_keys=True, queues=queues)
        asked.append(Asked(job, copy(root, "java"), questions))
        rows.append((Outcome(job), root, answers))
    theirs = ask_java(version, asked, scratch)
    for (outcome, root, answers), item, their in zip(rows, asked, theirs, strict=True):
        before = parts(root)
        check_opening(outcome, item, root, "r", their, "clean")
        check_writable(outcome, item, root, their, "clean")
        for name in changed(before, parts(root)):
            outcome.found.fail(f"opened for writing and closed, {name} is not what it was")
        _replay(outcome, root, answers)
    return [outcome for outcome, _, _ in rows]


def check_writable(
    outcome: Outcome, item: Asked, root: Path, theirs: Answers | None, label: str, **rules: Any
) -> None:
    """Open for writing and compare all answers; what rocketstore cannot write it refuses, and
    changes nothing."""
    if item.job.feature.writable:
        check_opening(outcome, item, root, "r+", theirs, label, **rules)
        return
    before = files_below(root)
    outcome.found.compared += 1
    try:
        ours.open_store(root, "r+", item.job).close()
    except rocketstore.MappedFileError as error:
        if "RocksDB" not in str(error):
            outcome.found.fail(f"{label}: refused for another reason: {error}")
    else:
        outcome.found.fail(f"{label}: a store with queues in RocksDB was opened for writing")
    for name in changed(before, files_below(root)):
        outcome.found.fail(f"{label}: refused, but {name} is not what it was")


def _replay(outcome: Outcome, root: Path, answers: Answers) -> None:
    """The same script with RocketMQ's clock gives the same answers and the same files."""
    mine = root.parent / "replayed"
    for op, theirs, our in ours.replay(mine, outcome.job, answers):
        outcome.found.compared += 1
        # Of what was not stored only the status counts.
        is_whole = theirs.get("append") == "PUT_OK" or op["op"] == "expire"
        names = theirs.keys() if is_whole else {"status"}
        if any(our.get(name) != theirs[name] for name in names):
            outcome.found.fail(
                f"put again: {shown(op)}\n  RocketMQ    {theirs}\n  rocketstore {our}"
            )
    queues = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
    for part in ("commitlog", *(queues if outcome.job.feature.writable else ())):
        for name in changed(parts(root, (part,)), parts(mine, (part,))):
            outcome.found.fail(f"put again: {name} differs")
    # Their names are times.
    slots = int(outcome.job.config["maxHashSlotNum"])
    theirs, ours_again = (parts(path, ("index",)) for path in (root, mine))
    if list(theirs.values()) == list(ours_again.values()):
        return
    if is_named_twice(parsed(theirs, slots), parsed(ours_again, slots)):
        outcome.found.know("D-40")
    else:
        shown_sides = "\n".join(
            f"  {who} {[*files]} {shown([file.header for file in parsed(files, slots)])}"
            for who, files in (("RocketMQ   ", theirs), ("rocketstore", ours_again))
        )
        outcome.found.fail(f"put again: the index files differ\n{shown_sides}")


def halted(version: str, jobs: Sequence[Job], scratch: Path) -> list[Outcome]:
    """Written by RocketMQ, which is halted at any moment: equal answers but for lost keys."""
    outcomes = []
    for start in range(0, len(jobs), STORES_PER_HALT):
        group = jobs[start : start + STORES_PER_HALT]
        folder = scratch / f"halt-{start}"
        outcomes += _after_halt(version, group, folder, write_and_halt(version, group, folder))
    return outcomes


def write_and_halt(version: str, jobs: Sequence[Job], scratch: Path) -> list[list[Written]]:
    """Let RocketMQ write, halt it amid the writes; return what it acknowledged."""
    pick = random.Random(f"halt {jobs[0].seed} {len(jobs[0].script)}")
    total = sum(len(job.script) for job in jobs)
    awaited = threading.Semaphore(0)
    threshold = pick.randrange(total // 8, total)
    with Driver(version, scratch) as driver:
        for job in jobs:
            root = scratch / job.name / "store"
            driver.open(job.name, root, job.config, job.feature.topics).result()
        pending = [driver.script(job.name, java_script(job), awaited.release) for job in jobs]
        for _ in range(threshold):
            if not awaited.acquire(timeout=DEADLINE_S):
                raise driver.error("no write was acknowledged for minutes")
        driver.halt()
    return [
        list(zip(java_script(job), item.acks, strict=False))
        for job, item in zip(jobs, pending, strict=True)
    ]


def questions_after_crash(job: Job, written: Sequence[Written]) -> list[Question]:
    """Questions about a store whose writer was killed: every acknowledged message first."""
    looks: list[Question] = [
        {"op": "look", "offset": answer["offset"]}
        for _, answer in written
        if answer.get("append") == "PUT_OK"
    ]
    queues = unlisted_queues(job)
    return [*make_questions(written, job.seed, timed_keys=False, queues=queues), *looks]


def _after_halt(
    version: str, jobs: Sequence[Job], scratch: Path, written: Sequence[list[Written]]
) -> list[Outcome]:
    asked, outcomes = [], []
    for job, acknowledged in zip(jobs, written, strict=True):
        root = scratch / job.name / "store"
        questions = questions_after_crash(job, acknowledged)
        asked.append(Asked(job, copy(root, "java"), questions))
    refused = [version < "5" and without_empty_files(item) for item in asked]
    theirs = ask_java(version, asked, scratch)
    for item, their, is_refused, acknowledged in zip(asked, theirs, refused, written, strict=True):
        outcome = Outcome(item.job)
        outcome.found.know("D-41", is_refused)
        root = item.root.parent / "store"
        by_mtime = item.job.version < "5"
        rules = {"crashed": True, "touched": touched(root, item.root) if by_mtime else set()}
        check_opening(outcome, item, root, "r", their, "halted", **rules)
        writable = copy(root, "writable")
        if by_mtime:
            rules["touched"] |= set(queues_of(item.questions))
        check_writable(outcome, item, writable, their, "halted", **rules)
        if their is not None:
            check_acknowledged(outcome, item, acknowledged, their, "RocketMQ")
        outcomes.append(outcome)
    return outcomes


def queues_of(questions: Sequence[Question]) -> list[tuple[str, int]]:
    """The queues that are asked about by time."""
    return [(item["topic"], item["queueId"]) for item in questions if item["op"] == "bytime"]


def check_acknowledged(
    outcome: Outcome, item: Asked, written: Sequence[Written], answers: Answers, who: str
) -> None:
    """Every acknowledged message that has not expired is found at its offset."""
    # An expiry may have been in progress without an answer.
    first = answers[0]["minPhy"] if any(op["op"] == "expire" for op in item.job.script) else 0
    acknowledged = {
        answer["offset"]
        for _, answer in written
        if answer.get("append") and answer["offset"] >= first
    }
    for question, answer in zip(item.questions, answers, strict=True):
        if question["op"] == "look" and question["offset"] in acknowledged:
            outcome.found.compared += 1
            if not answer.get("message"):
                outcome.found.fail(f"{who} lost an acknowledged message: {question}")
