"""Any number of power failures on the modelled disk: ``make powercut STATES= SEED=``.

A campaign is a row of stories. Each has a few lives: the first begins with nothing, every other in
a state that the one before may have left. All distinct states of all lives are judged.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import random
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import rocketstore
from crash.campaigns import Ticker, expect_damage, finish, scratch_folder
from crash.power_cut import write_image
from crash.power_cut_judge import Expectation, judge, judge_thoroughly
from crash.power_cut_life import MODES, History, Life, State
from rocketstore.recovery import index as index_recovery

LIVES = 4
#: States drawn at a chosen moment, on average.
IMAGES = 30
#: One state in so many is judged by every way there is to read a store, one in so many closed.
THOROUGH_EVERY = 200
CLOSE_EVERY = 20
#: More entries than an index file has.
ONE_TURN = 1 << 31


@dataclass
class Story:
    """What one story was: the states judged, and the broken promises with where they were seen."""

    mode: str
    number: int
    states: int = 0
    thorough: int = 0
    broken: list[str] = field(default_factory=list)


def run_story(seed: int, mode: str, number: int, scratch: Path) -> Story:
    """Run one story; the same arguments run the same one.

    Every other one's stores check the newest index file beside the log, however small it is.
    """
    with mock.patch.object(index_recovery, "WORTH_A_THREAD", number % 2 or ONE_TURN):
        return _tell(seed, mode, number, scratch)


def _tell(seed: int, mode: str, number: int, scratch: Path) -> Story:
    choose = random.Random(f"{seed} {mode} {number}")
    story = Story(mode, number)
    history = History()
    root = scratch / f"{mode}-{number}"
    for generation in range(LIVES):
        life = Life(root, choose, history, mode, IMAGES)
        life.run()
        shutil.rmtree(root)
        states = distinct(life.states)
        survivor = choose.choice(states)
        expected = Expectation(life.history)
        ends = [
            _judge_one(story, state, expected, f"{root}-image", f"life {generation} state {which}")
            for which, state in enumerate(states)
        ]
        end = ends[states.index(survivor)]
        if end is None:
            break
        # The next life begins in an image as it is; the power may fail in its recovery, too.
        write_image(survivor.image, str(root))
        history = life.history.truncated(end)
        history.confirmed_end, history.log_start = survivor.confirmed_end, survivor.log_start
    shutil.rmtree(root, ignore_errors=True)
    return story


def distinct(states: list[State]) -> list[State]:
    """Without those that equal a former one in everything that is judged."""
    found = {(hash(tuple(state.image.items())), *state[1:]): state for state in states}
    return list(found.values())


def _judge_one(
    story: Story, state: State, expected: Expectation, root: str, where: str
) -> int | None:
    story.states += 1
    closing = story.states % CLOSE_EVERY == 0
    try:
        end = judge(state, expected, story.mode, Path(root), closing=closing)
        if story.states % THOROUGH_EVERY == 1:
            story.thorough += 1
            judge_thoroughly(state, expected.history, story.mode, Path(root))
    except Exception:  # noqa: BLE001 - reported by the campaign, which fails
        failure = f"--mode {story.mode} --story {story.number}: {where}\n{traceback.format_exc()}"
        story.broken.append(failure)
        return None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return end


def stories(seed: int, modes: list[str], processes: int) -> Iterator[Story]:
    """Stories without end, the modes in turn; with several processes in any order."""
    with scratch_folder("power") as scratch:
        numbers = ((modes[n % len(modes)], n // len(modes)) for n in range(1 << 40))
        if processes == 1:
            for mode, number in numbers:
                yield run_story(seed, mode, number, scratch)
        context = multiprocessing.get_context("fork")
        with context.Pool(processes, maxtasksperchild=50) as pool:
            while True:
                some = [next(numbers) for _ in range(8 * processes)]
                call = functools.partial(_tell_pair, seed, scratch)
                yield from pool.imap_unordered(call, some)


def _tell_pair(seed: int, scratch: Path, which: tuple[str, int]) -> Story:
    return run_story(seed, *which, scratch)


def main(arguments: list[str] | None = None) -> int:
    """Judge states until there are enough; print what was done, and every broken promise."""
    parser = argparse.ArgumentParser(prog="crash.power_cut_campaign", description=__doc__)
    parser.add_argument("--states", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--story", type=int, help="this one only, of the first mode given")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--report", type=Path, help="write the counts to this JSON file")
    options = parser.parse_args(arguments)
    expect_damage()
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    began, states, thorough, broken, story_count = time.monotonic(), 0, 0, 0, 0
    print(f"--seed {seed}", flush=True)
    ticker = Ticker("states", options.states)
    for story in _chosen(options, seed):
        states, thorough, story_count = (
            states + story.states,
            thorough + story.thorough,
            story_count + 1,
        )
        broken += len(story.broken)
        for text in story.broken[:3]:
            print(f"BROKEN --seed {seed} {text}", flush=True)
        ticker.report(states, broken)
        if states >= options.states or broken > 20:
            break
    summary = {
        "states": states,
        "thorough": thorough,
        "stories": story_count,
        "modes": options.modes,
        "seed": seed,
        "kernels": rocketstore.kernels.name,
        "version": rocketstore.__version__,
        "broken": broken,
        "seconds": round(time.monotonic() - began, 1),
    }
    return finish(summary, options.report)


def _chosen(options: argparse.Namespace, seed: int) -> Iterator[Story]:
    if options.story is None:
        yield from stories(seed, options.modes, options.processes)
        return
    with scratch_folder("power") as scratch:
        yield run_story(seed, options.modes[0], options.story, scratch)


if __name__ == "__main__":
    sys.exit(main())
