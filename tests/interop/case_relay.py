"""Relay: RocketMQ appends, we append, RocketMQ appends; five turns, versions only upward."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop import ours
from interop.asking import Written, make_questions
from interop.cases import Asked, Outcome, ask_ours, habits
from interop.comparing import compare, shown
from interop.harness import DEADLINE_S, VERSIONS, Driver
from interop.workload import TYPE_PREPARED, TYPE_ROLLBACK, Job, Op, for_java

TURNS = 5
STORES_PER_CHAIN = 10
#: The first of the versions that puts tags into the index.
FIRST_WITH_TAGS = "5.4.0"


@dataclass
class Relay:
    """One store that is handed on."""

    job: Job
    root: Path
    #: The version of each turn; in turns 1 and 3 we write as that version does.
    versions: tuple[str, ...]
    outcome: Outcome
    written: list[Written] = field(default_factory=list)

    def part(self, turn: int) -> Sequence[Op]:
        """What is written in a turn."""
        script = self.job.script
        return script[turn * len(script) // TURNS : (turn + 1) * len(script) // TURNS]

    def questions(self) -> Asked:
        """What is asked before a turn; times only where they do not go by modification times."""
        questions = make_questions(self.written, self.job.seed, timed_keys=True, count=6)
        if "4.9.8" in self.versions:
            questions = [item for item in questions if item["op"] != "bytime"]
        return Asked(self.job, self.root, questions)


def turns(version: str, seed: int) -> tuple[str, ...]:
    """The versions of all turns of a relay that ends with ``version``.

    A few chains at a time: each version in them is a process to start.
    """
    pick = random.Random(f"relay {seed // STORES_PER_CHAIN}")
    older = VERSIONS[: VERSIONS.index(version) + 1]
    first, second = sorted(pick.choices(older, k=2), key=VERSIONS.index)
    return first, first, second, second, version


def first_version(version: str, seed: int) -> str:
    """The version of the first turn: what is written must be known to it."""
    return turns(version, seed)[0]


def up_to(version: str, jobs: Sequence[Job], scratch: Path) -> list[Outcome]:
    """Relays that end with ``version``; all turns before it have that or an older one."""
    relays = [
        Relay(job, scratch / job.name / "store", turns(version, job.seed), Outcome(job))
        for job in jobs
    ]
    for turn in range(TURNS):
        if turn % 2:
            for relay in relays:
                _our_turn(relay, turn)
            continue
        for name in sorted({relay.versions[turn] for relay in relays}):
            group = [relay for relay in relays if relay.versions[turn] == name]
            _java_turn(name, group, turn, scratch)
    for relay in relays:
        _check_offsets(relay)
        _check_last(relay)
    return [relay.outcome for relay in relays]


def _our_turn(relay: Relay, turn: int) -> None:
    with ours.Writing(relay.root, "r+", relay.job, version=relay.versions[turn]) as writing:
        part = relay.part(turn)
        answers = writing.run(part)
        if not writing.store.wait_dispatched(DEADLINE_S):
            relay.outcome.found.fail(f"turn {turn}: dispatch does not end")
    relay.written += zip(part, answers, strict=True)


def _java_turn(version: str, relays: Sequence[Relay], turn: int, scratch: Path) -> None:
    """Open, ask what we answered just before, append, close."""
    asked = [relay.questions() for relay in relays]
    mine = [
        ask_ours(relay.root, "r", item, version=version) if turn else None
        for relay, item in zip(relays, asked, strict=True)
    ]
    with Driver(version, scratch) as driver:
        opened = [
            driver.open(relay.job.name, relay.root, relay.job.config, relay.job.feature.topics)
            for relay in relays
        ]
        scripts = []
        for relay, item, our, pending in zip(relays, asked, mine, opened, strict=True):
            if not pending.result()["load"]:
                relay.outcome.found.fail(f"turn {turn}: RocketMQ {version} does not load the store")
                continue
            if our is not None:
                theirs = driver.ask(relay.job.name, item.questions).result()["answers"]
                label = f"turn {turn}, RocketMQ {version}"
                before = relay.versions[:turn]
                relay.outcome.found.add(
                    compare(
                        item.questions,
                        theirs,
                        our,
                        label,
                        adds_tags=version >= FIRST_WITH_TAGS > min(before),
                        **habits(relay.job, version),
                    )
                )
            part = [for_java(op, version) for op in relay.part(turn)]
            scripts.append((relay, part, driver.script(relay.job.name, part)))
        for relay, part, pending in scripts:
            relay.written += zip(part, pending.result()["answers"], strict=True)
            driver.ask(relay.job.name, [{"op": "wait"}]).result()
        driver.close(relay.job.name for relay, _, _ in scripts)


def _check_last(relay: Relay) -> None:
    """After the last turn everything that was acknowledged, and has not expired, is there."""
    first = max((answer.get("minPhy", 0) for _, answer in relay.written), default=0)
    with ours.open_store(relay.root, "r", relay.job, version=relay.versions[-1]) as store:
        if store.min_physical_offset != first:
            relay.outcome.found.fail(f"log begins at {store.min_physical_offset}, not at {first}")
        for op, answer in relay.written:
            relay.outcome.found.compared += 1
            if answer.get("append") == "PUT_OK" and answer["offset"] >= first:
                message = store.look_message_by_offset(answer["offset"])
                if message is None or message.store_timestamp != answer["storeTs"]:
                    relay.outcome.found.fail(f"after all turns {shown(op)} is not at its offset")


def _check_offsets(relay: Relay) -> None:
    """Queue offsets and log offsets go on from turn to turn without a gap."""
    following: dict[tuple[str, int], int] = {}
    end = 0
    size = int(relay.job.config["mappedFileSizeCommitLog"])
    for op, answer in relay.written:
        if answer.get("append") != "PUT_OK" or answer["status"] != "PUT_OK":
            continue
        if answer["offset"] != end and answer["offset"] != -(-end // size) * size:
            relay.outcome.found.fail(f"log offset {answer['offset']} follows on {end}")
        end = answer["offset"] + answer["bytes"]
        _check_queue_offset(relay, op, answer, following)


def _check_queue_offset(
    relay: Relay, op: Op, answer: Mapping[str, Any], following: dict[tuple[str, int], int]
) -> None:
    is_unqueued = op.get("sysFlag", 0) & TYPE_ROLLBACK in (TYPE_PREPARED, TYPE_ROLLBACK)
    if is_unqueued or "DELAY" in op["props"]:
        return
    queue = op["topic"], op["queueId"]
    expected = following.get(queue, 0)
    if answer["queueOffset"] != expected:
        relay.outcome.found.fail(
            f"{queue}: queue offset {answer['queueOffset']} after {expected - 1}"
        )
    following[queue] = answer["queueOffset"] + len(op.get("messages", "1"))
