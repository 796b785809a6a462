"""Runs all queries on one damaged store and checks what must hold, in a child process."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import (
    ConfigError,
    GetMessageStatus,
    MappedFileError,
    RocketStoreError,
    TagFilter,
)
from store_fuzz import tree as trees
from store_fuzz.access import readable
from store_fuzz.bases import Base
from store_fuzz.mutations import Mutation
from store_fuzz.promises import Promised, is_named, promised
from store_fuzz.records import Original, parse, segments
from store_fuzz.sabotage import Sabotage
from store_fuzz.tree import Tree

#: Errors that a damaged store may raise. A bare ``struct.error``, ``AssertionError`` or
#: ``IndexError`` is a finding.
ALLOWED = (RocketStoreError, OSError, ValueError)
_MARKS = ("checkpoint", "rocketstore.state", "abort", "config")
_DERIVED = ("consumequeue", "index", "checkpoint", "rocketstore.state", "abort")
#: Kinds of findings that opening for writing does not repair.
_STAYS = ("foreign-file", "odd-file", "timer-file", "queue-type", "config-table")
_CONTENT_OPS = {
    *("write", "flip", "zero", "noise", "truncate", "extend", "insert", "remove", "copy"),
    *("swap", "forge", "places"),
}


class Broken(Exception):  # noqa: N818 - it is the finding, not an error of the fuzzer
    """A broken promise."""


def demand(condition: object, what: str) -> None:
    """Raise ``Broken`` unless ``condition`` holds."""
    if not condition:
        raise Broken(what)


@dataclass
class Facts:
    """What is known about a damaged store without using rocketstore.

    ``intact``: originals that are unchanged at their offset in a complete, readable segment.
    ``forbidden``: those in a segment without read permission. ``first_change``: log offset of the
    first changed byte. ``promised``: the promise, if exactly one thing is wrong.
    """

    base: Base
    tree: Tree
    logs: dict[int, bytes]
    intact: list[Original]
    forbidden: list[Original]
    first_change: int
    marks_kept: bool
    must_open: bool
    linked: bool
    promised: Promised | None
    written: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, base: Base, tree: Tree, mutations: list[Mutation]) -> Facts:
        """Compare the damaged tree with the undamaged one."""
        before, logs = segments(base.tree), segments(tree)
        same_log = {k: v for k, v in base.tree.items() if k.startswith("commitlog")} == {
            k: v for k, v in tree.items() if k.startswith("commitlog")
        }
        places = {m["path"].partition("/")[0] for m in mutations}
        calm = all(m["op"] in {*_CONTENT_OPS, "delete"} for m in mutations)
        return cls(
            base,
            tree,
            logs,
            _at_their_place(base, logs),
            _at_their_place(base, segments(tree, forbidden=True)),
            2**63 if same_log else _first_change(before, logs),
            all(_below(base.tree, name) == _below(tree, name) for name in _MARKS),
            same_log and calm and places <= set(_DERIVED) and base.whole.get("openable", True),
            any(entry.kind == "link" for entry in tree.values()),
            promised(base, tree, mutations),
        )

    def allows(self, offset: int, raw: bytes) -> bool:
        """Return whether a delivered record was written, or is on disk with changes that no check
        can detect."""
        if self.written.get(offset) == raw:
            return True
        original = self.base.by_offset.get(offset)
        if original is None:
            return False
        if original.raw == raw:
            return True
        unseen = original.is_variant(raw) or original.is_without_body(raw)
        return unseen and self._lies_on_disk(offset, raw)

    def _lies_on_disk(self, offset: int, raw: bytes) -> bool:
        return any(
            content[offset - start : offset - start + len(raw)] == raw
            for start, content in self.logs.items()
            if start <= offset
        )


def _at_their_place(base: Base, logs: dict[int, bytes]) -> list[Original]:
    """Return the records that are unchanged in complete segments."""
    size = base.options["mapped_file_size_commit_log"]
    found = []
    for original in base.originals:
        start = original.offset - original.offset % size
        at = original.offset - start
        content = logs.get(start, b"")
        if len(content) == size and content[at : at + len(original.raw)] == original.raw:
            found.append(original)
    return found


def _below(tree: Tree, name: str) -> dict[str, trees.Entry]:
    return {path: entry for path, entry in tree.items() if path.partition("/")[0] == name}


def _first_change(before: dict[int, bytes], after: dict[int, bytes]) -> int:
    for start in sorted(set(before) | set(after)):
        old, new = before.get(start, b""), after.get(start, b"")
        if old != new:
            pairs = enumerate(zip(old, new, strict=False))
            return start + next((at for at, (a, b) in pairs if a != b), 0)
    return 0


class Exercise:
    """All queries and writes on one damaged store.

    Parameters
    ----------
    facts : Facts
    root, outside : Path
        The store; a folder beside it that must not change.
    rng : random.Random
        Chooses the queries if running all would take too long.
    """

    def __init__(self, facts: Facts, root: Path, outside: Path, rng: random.Random) -> None:
        self.facts = facts
        self.base = facts.base
        self._root = root
        self._outside = outside
        self._rng = rng
        self._options = facts.base.options if rng.random() < 0.5 else {}
        self.shown: list[bytes] | None = None
        self.trace = ""
        self._taken: dict[int, bytes] = {}

    def run(self) -> None:
        """Run everything; raise ``Broken`` or an error that is not allowed."""
        before = trees.fingerprint(self._root)
        outside = trees.fingerprint(self._outside)
        for derive in ("tail", self._rng.choice(("full", "none"))):
            self._read(derive)
            self._unchanged(before, self._root, f'mode "r" with derive {derive} changed')
        self._write(before)
        self._unchanged(outside, self._outside, "outside the root this changed:")

    def _unchanged(self, before: dict[str, Any], root: Path, what: str) -> None:
        changed = trees.differences(before, trees.fingerprint(root))
        demand(not changed, f"{what} {changed}")

    # --- reading ------------------------------------------------------------------------------

    def _read(self, derive: str) -> None:
        self.trace = f"open r, {derive}"
        try:
            store = rocketstore.open(self._root, "r", derive=derive, **self._options)
        except ALLOWED as error:
            refused = self.facts.must_open and not self._contradicted(error)
            demand(not refused, f"derived files are odd, and mode r refuses: {error}")
            self._demand_refusal(error)
            return
        with store:
            self._demand_promised(store)
            raws = self._ask_all(store)
            if derive == "tail":
                self.shown = raws
            if self.facts.first_change == 2**63 and derive == "full":
                self._complete(store)
            if self._rng.random() < 0.2:
                store.refresh()
                demand(self._scan(store) == raws, "refresh() of an unchanged store shows another")

    def _demand_refusal(self, error: Exception) -> None:
        """Check that mode ``"r"`` may refuse the store, and that its error names the store."""
        promised = self.facts.promised
        if promised is None or self._contradicted(error):
            return
        demand(not promised.is_read, f"{promised.wrong.value}, and mode r refuses: {error}")
        if promised.refuses_everything:
            by_name = isinstance(error, MappedFileError) and str(self._root) in str(error)
            demand(by_name, f"{promised.wrong.value}, and is refused with: {error!r}")

    def _demand_promised(self, store: Any) -> None:
        """Check what mode ``"r"`` must report about a store with one thing wrong."""
        promised = self.facts.promised
        if promised is None:
            return
        demand(not promised.refuses_everything, f"{promised.wrong.value}, and mode r opens it")
        damaged = store.recovery_report.damaged
        if promised.is_damage:
            named = is_named(self._root, promised.path, damaged)
            demand(named, f"{promised.wrong.value}, and is not among the damage: {damaged}")
        if promised.is_found and self.base.whole.get("verified", True):
            report = self._allowed(store.verify)
            demand(report is None or not report.ok, f"{promised.wrong.value}, and verify says ok")
        if promised.is_damage:
            everything = self._allowed(lambda: [*store.scan(on_corruption="fail")])
            demand(everything is None, f"{promised.wrong.value}, and a scan that is to fail ends")

    def _contradicted(self, error: Exception) -> bool:
        """Return whether the given sizes were refused: a file of another size contradicts them."""
        return bool(self._options) and isinstance(error, ConfigError)

    def _scan(self, store: Any) -> list[bytes]:
        raws = []
        last = -1
        for message in store.scan(on_corruption="skip"):
            raws.append(self._take(message))
            demand(message.physical_offset > last, "scan goes back")
            last = message.physical_offset
        return raws

    def _take(self, message: Any) -> bytes:
        """Check one delivered message."""
        raw, offset = bytes(message.raw), message.physical_offset
        if self._taken.get(offset) == raw:
            return raw
        self._taken[offset] = raw
        demand(self.facts.allows(offset, raw), f"delivered at {offset} what was never written")
        parsed = parse(raw, offset)
        demand(parsed is not None, f"delivered at {offset} what is not a good record")
        assert parsed is not None
        demand(message.body == raw[parsed.body], f"another body at {offset}")
        demand(message.store_size == len(raw), f"another size at {offset}")
        dict(message.properties), message.tags, message.keys, repr(message), message.msg_id
        return raw

    def _ask_all(self, store: Any) -> list[bytes]:
        """Run all queries; return the records of a scan."""
        self.trace += ", scan"
        raws = self._scan(store)
        self._demand_intact(set(raws))
        for policy in ("stop", "fail"):
            self._allowed(
                lambda policy=policy: [*map(self._take, store.scan(on_corruption=policy))]
            )
        repr(store.recovery_report), store.runtime_info(), store.dispatch_behind_nbytes
        self.trace += ", queues"
        for topic in store.topics():
            for queue_id in store.queues(topic):
                self._ask_queue(store, topic, queue_id)
        self.trace += ", keys"
        self._ask_keys(store)
        self.trace += ", offsets"
        self._ask_offsets(store)
        self.trace += ", verify"
        self._allowed(lambda: repr(store.verify()))
        return raws

    def _allowed(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ALLOWED:
            return None

    def _demand_intact(self, raws: set[bytes]) -> None:
        """Check that every record before the first damage is shown, and that all good records are
        shown if they were durable."""
        facts = self.facts
        for original in facts.intact:
            if original.end <= facts.first_change:
                demand(original.raw in raws, f"the good record at {original.offset} is not shown")
        if facts.marks_kept and self.base.mark >= self.base.end and "abort" not in facts.tree:
            missing = [o.offset for o in facts.intact if o.raw not in raws]
            demand(not missing, f"good durable records are not shown: {missing[:5]}")

    def _ask_queue(self, store: Any, topic: str, queue_id: int) -> None:
        self._allowed(lambda: list(self._pull(store, topic, queue_id)))
        low = store.min_offset_in_queue(topic, queue_id)
        high = store.max_offset_in_queue(topic, queue_id)
        hostile = (0, -1, high, high + 1, 2**63 - 1, -(2**63), (low + high) // 2)
        for offset in self._rng.sample(hostile, 3):
            self._allowed(
                lambda offset=offset: [
                    *map(self._take, store.get_message("g", topic, queue_id, offset).messages)
                ]
            )
        tags = TagFilter("Tag0 || TagA")
        self._allowed(lambda: store.get_message("g", topic, queue_id, low, 5, filter=tags))
        self._allowed(lambda: store.queue_view(topic, queue_id))
        self._allowed(lambda: store.filter_units(topic, queue_id, tags))
        for boundary in (None, "lower", "upper"):
            time = self._rng.choice((0, -1, 2**62, 1_700_000_000_500))
            self._allowed(
                lambda boundary=boundary, time=time: store.get_offset_in_queue_by_time(
                    topic, queue_id, time, boundary=boundary
                )
            )

    def _pull(self, store: Any, topic: str, queue_id: int) -> Iterator[Any]:
        """Yield every message of a queue, in order; skip messages that cannot be read."""
        offset, last = store.min_offset_in_queue(topic, queue_id), -1
        for _ in range(4000):
            try:
                result = store.get_message("g", topic, queue_id, offset)
                messages = list(result.messages)
            except RocketStoreError:
                offset += 1
                continue
            for message in messages:
                self._take(message)
                self._demand_place(message, topic, queue_id)
                demand(message.physical_offset > last, f"{topic}/{queue_id} goes back in the log")
                last = message.physical_offset
                yield message
            ended = (GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)
            if result.next_begin_offset <= offset or result.status in ended:
                return
            offset = result.next_begin_offset
        raise Broken(f"{topic}/{queue_id} does not end")

    def _demand_place(self, message: Any, topic: str, queue_id: int) -> None:
        if topic.startswith("%LMQ%") or "INNER_MULTI_DISPATCH" in message.properties:
            return
        demand(
            (message.topic, message.queue_id) == (topic, queue_id),
            f"queue {topic}/{queue_id} delivers one of {message.topic}/{message.queue_id}",
        )

    def _ask_keys(self, store: Any) -> None:
        keyed = [o for o in self.base.originals if o.keys]
        for original in self._rng.sample(keyed, min(12, len(keyed))):
            topic, key = original.queue[0], self._rng.choice(original.keys)
            for message in (
                self._allowed(lambda t=topic, k=key: [*store.find(topic=t, key=k)]) or ()
            ):
                self._take(message)
                demand(message.topic == topic, "find(topic=) answers with another topic")
                demand(key in (message.keys or "").split(" "), "find(key=) answers with another")
            answer = self._allowed(lambda t=topic, k=key: store.query_message(t, k, 64))
            for message in answer.messages if answer is not None else ():
                self._take(message)
            self._allowed(lambda t=topic, k=key: store.index_offsets(t, [k, "none", ""]))
        self._allowed(lambda: store.query_message("Orders", "common", 2**31 - 1, -5, 2**63 - 1))

    def _ask_offsets(self, store: Any) -> None:
        originals = self.base.originals
        sample = [o.offset for o in self._rng.sample(originals, min(20, len(originals)))]
        sample += [offset + 1 for offset in sample[:5]]
        for offset in (*sample, 0, -1, 2**63 - 1, store.max_physical_offset, self.base.end - 1):
            message = self._allowed(lambda offset=offset: store.look_message_by_offset(offset))
            if message is not None:
                first = offset == 0  # returns the first existing record, as RocketMQ does
                demand(first or message.physical_offset == offset, "another record than asked for")
                self._take(message)

    def _complete(self, store: Any) -> None:
        """Check, for an undamaged log, that queues and keys give every message."""
        self.trace += ", complete"
        wanted: dict[tuple[str, int], list[bytes]] = {}
        for original in self.base.originals:
            if not original.is_transient:
                wanted.setdefault(original.queue, []).append(original.raw)
        if self.base.whole.get("pulled", True):
            for (topic, queue_id), raws in wanted.items():
                got = [bytes(m.raw) for m in self._pull(store, topic, queue_id)]
                demand(
                    got[: len(raws)] == raws,
                    f"{topic}/{queue_id} has {len(raws)} messages, {len(got)} were read",
                )
        keyed = [o for o in self.base.originals if o.keys and not o.is_transient]
        if self.base.whole.get("found", True):
            for original in self._rng.sample(keyed, min(20, len(keyed))):
                hits = store.find(topic=original.queue[0], key=original.keys[0])
                found = original.offset in [m.physical_offset for m in hits]
                demand(found, f"index: {original.keys[0]} of {original.queue} is not found")
        if store.mode != "r" and self.base.whole.get("verified", True):
            report = store.verify()  # (in mode "r" it judges the files, not what is made in memory)
            findings = [one for one in report.findings if not self._was_put_there(one)]
            if _below(self.base.tree, "config") != _below(self.facts.tree, "config"):
                findings = [one for one in findings if not self._is_of_config(one)]
            found = [one.kind for one in findings]
            others = [
                kind for kind in found if not kind.startswith("index") and kind != "missing-key"
            ]
            where = "" if others else "index: "
            demand(not found, f"{where}verify finds {sorted(set(found))}: {report.findings[:2]}")

    def _is_of_config(self, finding: Any) -> bool:
        """Whether a finding is about the tables, which opening a store leaves as they are."""
        path = os.path.relpath(finding.path, self._root)
        return finding.kind.startswith("config") or path.split(os.sep)[0] == "config"

    def _was_put_there(self, finding: Any) -> bool:
        """Return whether a finding is about an entry that a mutation created; these stay."""
        path = os.path.relpath(finding.path, self._root)
        return finding.kind in _STAYS and path in self.facts.tree and path not in self.base.tree

    # --- writing ------------------------------------------------------------------------------

    def _write(self, before: dict[str, Any]) -> None:
        self.trace = "open r+"
        facts = self.facts
        try:
            store = rocketstore.open(self._root, "r+", **self._options)
        except ALLOWED as error:
            if not isinstance(error, FileExistsError):  # detected when a folder is created
                self._unchanged(before, self._root, f"refused ({error}), but changed")
            asked = facts.must_open and self.base.whole.get("writable", True)
            refused = asked and not self._contradicted(error)
            demand(not refused, f"derived files are odd, and mode r+ refuses: {error}")
            self._demand_refusal_of_all(before)
            self._salvage(before)
            return
        promised = facts.promised
        if promised is not None and promised.refuses_writing:
            store.close()
            raise Broken(f"{promised.wrong.value}, and mode r+ opens it")
        try:
            self._use_writer(store)
        finally:
            self.trace += ", close"
            store.close()
        self._demand_kept()
        self.trace = "open r+ again"
        with rocketstore.open(self._root, "r+", **self._options) as again:
            demand(not again.recovery_report.cut, "a closed store is truncated")
            demand(not again.recovery_report.damaged, "a closed store is damaged")
            raws = set(self._ask_all(again))
            for offset, raw in facts.written.items():
                demand(raw in raws, f"the acknowledged record at {offset} is gone")
        if self._rng.random() < 0.2 and not facts.linked:
            self.trace = "sabotage"
            options, originals = self._options, self.base.originals
            broken = Sabotage(self._root, options, originals, self._rng).run()
            demand(not broken, f"sabotage: {broken}")

    def _demand_refusal_of_all(self, before: dict[str, Any]) -> None:
        """Check that the other writing modes refuse what one refuses, and change nothing."""
        for mode in ("a", "x"):
            self.trace = f"open {mode}"
            try:
                rocketstore.open(self._root, mode, **self._options).close()
            except ALLOWED as error:
                if not isinstance(error, FileExistsError) or mode == "x":
                    self._unchanged(before, self._root, f"mode {mode} refused, but changed")
            else:
                raise Broken(f"mode r+ refuses what mode {mode} opens")

    def _salvage(self, before: dict[str, Any]) -> None:
        """Check that ``salvage`` repairs without loss, or refuses and changes nothing."""
        self.trace = "salvage"
        self._allowed(lambda: rocketstore.salvage(self._root, what_if=True, **self._options))
        self._unchanged(before, self._root, "salvage(what_if=True) changed")
        try:
            rocketstore.salvage(self._root, **self._options)
        except ALLOWED as error:
            self._unchanged(before, self._root, f"salvage refused ({error}), but changed")
            return
        self._demand_kept(cut_allowed=True)
        self.trace = "open r+ after salvage"
        with rocketstore.open(self._root, "r+", **self._options) as store:
            # (The scan also has placeholders and fillers in place of the damage.)
            self._demand_intact({bytes(message.raw) for message in store.scan()})

    def _use_writer(self, store: Any) -> None:
        raws = self._ask_all(store)
        if self.shown is not None:
            demand(raws == self.shown, "modes r and r+ show other messages")
        self.trace += ", put"
        for number in range(3):
            topic = self._rng.choice(("Orders", "Mix1", "TopicA"))
            result = store.put(topic, b"fuzz %d" % number, 0, "TagA", f"fuzz{number}")
            demand(result.ok, f"put answers {result.status}")
            message = store.look_message_by_offset(result.physical_offset)
            demand(message is not None, "what was put is not there")
            self.facts.written[result.physical_offset] = bytes(message.raw)
        demand(store.wait_dispatched(60), "dispatch does not end")
        for number in range(3):
            found = [m.body for m in store.find(topic=topic, key=f"fuzz{number}")]
            demand(len(found) <= 1, "one put is found twice")
        if self.facts.first_change == 2**63:
            try:
                self._complete(store)
            except Broken as error:
                if not self.facts.linked:  # a queue that is at the same time another one
                    raise Broken(f"not rebuilt: {error}") from error

    def _demand_kept(self, *, cut_allowed: bool = False) -> None:
        """Check that every complete record is still at its offset or in quarantine."""
        size = self.base.options["mapped_file_size_commit_log"]
        aside = b"".join(
            path.read_bytes()
            for path in sorted((self._root / "quarantine").glob("*"))
            if path.is_file()
        )
        for original in (*self.facts.intact, *self.facts.forbidden):
            start = original.offset - original.offset % size
            path = self._root / "commitlog" / f"{start:020d}"
            kept = b""
            if path.exists():
                with readable(path), path.open("rb") as file:
                    file.seek(original.offset - start)
                    kept = file.read(len(original.raw))
            where = f"the good record at {original.offset}"
            demand(kept == original.raw or original.raw in aside, f"{where} was not kept")
            if self.facts.marks_kept and self._log_ends_whole() and not cut_allowed:
                below = original.end <= self.base.mark
                demand(not below or kept == original.raw, f"{where} was durable, and is truncated")

    def _log_ends_whole(self) -> bool:
        return bool(self.facts.intact) and self.facts.intact[-1] is self.base.originals[-1]
