"""What to do next about the findings of an examination, in the order in which to do it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rocketstore import formats
from rocketstore.diagnosis.codes import Action, action_for, command_action, first_for
from rocketstore.directory.parts import is_store, store_parts

#: What to do about a store with a log in several folders, which no repair changes.
COPY_FIRST = (
    "copy the store with rocketstore clone, which puts its log in one folder; then plan the repair "
    "of the copy"
)


class NextSteps:
    """Gathers the next steps of findings; no step changes the store.

    A plan refuses a store that a person must put right first, so none is named then. It changes
    files below the store's root only, so a log elsewhere is for ``salvage``.

    Parameters
    ----------
    root : path or None
        The store, ``None`` if only a log is there.
    options : sequence of str
        Words that each command needs, such as ``--config FILE``.
    log_is_elsewhere : bool
        The log is outside the store's root.
    has_several_logs : bool
        It is in several folders: neither a plan nor ``salvage`` changes it.
    """

    def __init__(
        self,
        root: Path | None,
        options: Sequence[str],
        *,
        log_is_elsewhere: bool,
        has_several_logs: bool = False,
    ) -> None:
        self._root = root
        self._options = list(options)
        self._log_is_elsewhere = log_is_elsewhere
        self._has_several_logs = has_several_logs
        self._blocked = False
        self._first: dict[str, Action] = {}
        self._by_hand: dict[str, Action] = {}
        self._commands: dict[str, Action] = {}

    def action(self, code: str, *, is_blocking: bool) -> Action | None:
        """Return the next step for one finding, ``None`` if there is nothing to do."""
        if is_blocking and code == "store.foreign":
            return Action([], "move the foreign folder or link out of there")
        found = action_for(code, os.fspath(self._root or formats.COMMIT_LOG_DIR))
        if found is None or not found.command:
            return found
        if self._root is None:
            return Action([], "pass the directory of the store, which holds commitlog")
        name = found.command[1]
        if name == "plan" and self._has_several_logs:
            return Action([], COPY_FIRST)
        is_for_salvage = name == "plan" and self._log_is_elsewhere and code.startswith("log.")
        return self.command("salvage" if is_for_salvage else name)

    def command(self, name: str) -> Action:
        """Return a command of rocketstore over the store."""
        found = command_action(name, os.fspath(self._root or ""))
        found.command.extend(self._options)
        return found

    def take(self, code: str, action: Action | None, *, is_blocking: bool) -> None:
        """Add the step of a finding; ``is_blocking``: a plan refuses the store because of it."""
        self._blocked |= is_blocking
        if action is None:
            return
        first = first_for(code)
        if first is not None:
            self._first.setdefault(first.why, first)
        if action.command:
            self._commands.setdefault(action.command[1], action)
        else:
            self._by_hand.setdefault(action.why, action)

    def in_order(self) -> list[Action]:
        """Return the steps, each once, in the order in which to do them."""
        commands = dict(self._commands)
        if "salvage" in commands:  # it makes queues and index match, too
            commands.pop("plan", None)
        if self._blocked:
            self._by_hand.pop(COPY_FIRST, None)
            for name in ("plan", "salvage"):
                commands.pop(name, None)
            if self._root is not None:
                commands["doctor"] = self.command("doctor")
        is_first = {"plan", "salvage"} & commands.keys()
        firsts = list(self._first.values()) if is_first or self._blocked else []
        return [*self._by_hand.values(), *firsts, *commands.values()]


def root_of_log(path: Path) -> Path | None:
    """Return the store that a log's folder or segment belongs to, ``None`` if there is none."""
    log = path.parent if path.is_file() else path
    is_part = log.name == formats.COMMIT_LOG_DIR and is_store(store_parts(log.absolute().parent))
    return log.parent if is_part else None
