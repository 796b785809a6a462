"""The commands of ``rocketstore``, by what they are for; each is imported when it is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rocketstore.cli.common.outcome import reporting

#: Heading, and the commands below it: the module of each, and what is said of it.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Say what is there": {
        "info": ("commands.info", "RocketMQ version, sizes, last exit, messages of a store"),
        "ls": ("commands.ls", "Topics, queues or files, with extents and sizes"),
        "stats": ("engine.stats", "Runtime figures under RocketMQ's names"),
        "report": ("reporting.report", "The state of a store as one HTML page"),
    },
    "Find out what is wrong, and mend it": {
        "doctor": ("commands.doctor", "What is wrong, what it means for data, what to do"),
        "verify": ("commands.verify", "Check every record, queue unit and index entry"),
        "plan": ("mending.plan", "Write down what would mend a store; nothing is changed"),
        "repair": ("mending.repair", "Do what a plan says, or take a repair back"),
        "reindex": ("mending.reindex", "Build queues and index from the log again"),
        "recover": ("commands.recover", "Do what an opening for writing does, and no more"),
        "salvage": ("commands.salvage", "Make a store writable that cannot be opened"),
        "clean": ("commands.clean", "Delete the files that hold only expired messages"),
    },
    "Read and find messages": {
        "get": ("commands.get", "Messages of one queue, as a consumer gets them"),
        "find": ("commands.find", "Messages by key, id, topic, time or filter"),
        "grep": ("looking.grep", "Messages by their properties and bodies"),
        "show": ("commands.show", "One record with all its fields"),
        "scan": ("commands.scan", "The log in its own order"),
        "tail": ("commands.tail", "The newest messages; --follow also those to come"),
        "trace": ("looking.trace", "The life of one message"),
        "prove": ("looking.prove", "The evidence for one message, written to a folder"),
    },
    "Account": {
        "du": ("looking.usage", "What the bytes of a log are for"),
        "volume": ("looking.usage", "How much was stored when"),
        "lag": ("looking.lag", "Unread messages of groups, queue by queue"),
        "keys": ("looking.keys", "How full the index is, and how long its chains are"),
        "capacity": ("looking.capacity", "In how many days the disk is full"),
        "retention": ("looking.retention", "Which log files go when, and who loses messages"),
    },
    "Store and consume": {
        "put": ("commands.put", "Store messages; they are on disk when it returns"),
        "consume": ("engine.consume", "The messages that a group has not consumed yet"),
        "groups": ("engine.groups", "Consumer groups: offsets, lag, retries, dead letters"),
        "delay": ("engine.delay", "Delay levels: what waits, what is overdue"),
        "timer": ("engine.timer", "Messages that wait for their delivery time"),
        "transactions": ("engine.transactions", "Transactions that wait for a decision"),
    },
    "Copy and move": {
        "clone": ("moving.clone", "Copy a store consistently, and check the copy"),
        "export": ("moving.export", "Messages to Parquet, Arrow, NDJSON or CSV files"),
        "import": ("moving.importing", "The messages of an export into a store"),
        "replay": ("moving.replay", "The messages of a store into another one"),
        "diff": ("moving.diff", "Compare two stores"),
        "split": ("moving.split", "Some messages of a store into a new one"),
        "merge": ("moving.merge", "Two stores into one, in the order of their times"),
        "spark": ("spark.app", "Jobs on Spark: count, check, export and more"),
    },
    "Set up and try": {
        "config": ("configuring.app", "Show, check or convert a broker's configuration file"),
        "bench": ("bench.command", "Measure puts, reads and queries on this machine"),
        "demo": ("demo.command", "See a store written, killed, recovered and read"),
        "completion": ("commands.completion", "A script that completes commands in a shell"),
    },
}

_MODULES = {name: place for of in SECTIONS.values() for name, (place, _) in of.items()}
#: Commands that do something without an argument.
_WITHOUT_ARGUMENTS = frozenset({"bench", "demo"})


def _load(name: str) -> Any:
    """Return a command: the function of its name, or the application, of its module."""
    module = importlib.import_module(f"rocketstore.cli.{_MODULES[name]}")
    found = getattr(module, "import_" if name == "import" else name, None)
    if found is None:
        return get_command(module.app)
    only = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    only.command(name, no_args_is_help=name not in _WITHOUT_ARGUMENTS)(reporting(found))
    return get_command(only)


class _Commands(Mapping[str, Any]):
    """The commands by name."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in _MODULES:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = _load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)

    def __contains__(self, name: object) -> bool:
        return name in _MODULES


class CommandList(TyperGroup):
    """Has the commands, and lists them below headings."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections."""
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])
