"""The rows of the table: which line each contestant gets, and what is compared with what."""

from __future__ import annotations

from dataclasses import dataclass

BATCH, LIST = 32, 1000
#: Most messages of a row that several threads put or read.
THREADS_MOST = 100_000


@dataclass(frozen=True)
class PutRow:
    """A way to put all messages of a set into a new store.

    Attributes
    ----------
    name : str
    meaning : str
        What is measured, as the table's notes say it.
    line : str
        First words of our line: ``put put_many``.
    jar : str
        The same for the jars; rows with the same words share the jars' figures.
    limit : str
        The same for the bare loop.
    step : int
        Messages made at a time; 0: as many as a part of the log takes (see ``run.py``).
    shapes : tuple of str
        Shapes of messages for which the row exists.
    """

    name: str
    meaning: str
    line: str
    jar: str = "put single"
    limit: str = "put fresh"
    step: int = LIST
    shapes: tuple[str, ...] = ("producer",)


@dataclass(frozen=True)
class SharedRow:
    """A way to put a share of a set into a store that the rows of a family fill one by one.

    Attributes
    ----------
    name, meaning, line, jar, limit : str
        As those of ``PutRow``; samples are noted by ``name``.
    limit_step : int
        Messages that the bare loop puts at a time; 0: as many as the others.
    most : int
        Put no more than this; 0: the whole share.
    answer : str
        Which time of the answer counts. Rows with the same line share one run.
    """

    name: str
    meaning: str
    line: str
    jar: str
    limit: str = ""
    limit_step: int = 0
    most: int = 0
    answer: str = "wall"


@dataclass(frozen=True)
class Family:
    """Rows of producer messages that share a store, which is opened with ``durability``."""

    name: str
    durability: str
    rows: tuple[SharedRow, ...]

    @property
    def lines(self) -> list[str]:
        """Our lines of all rows, each once."""
        return list(dict.fromkeys(row.line for row in self.rows))


@dataclass(frozen=True)
class AskRow:
    """A question to a filled store; ``{count}`` and ``{all}`` become numbers."""

    name: str
    meaning: str
    line: str
    jar: str = ""
    limit: str = ""
    #: Ask this many times, at most; 0: the line reads everything.
    most: int = 0


ALL_SHAPES = ("producer", "retry", "transaction")
#: The first is the one whose store is then read.
PUTS = (
    PutRow("put_message", "`put_message`, one by one", "put put_message", shapes=ALL_SHAPES),
    PutRow("put", "`put` with keyword arguments, one by one", "put put", shapes=ALL_SHAPES),
    PutRow("put_many", "`put_many`, lists of 1,000 `Message`", "put put_many", shapes=ALL_SHAPES),
    PutRow("put_messages", "`put_messages`, batches of 32 for one queue (RocketMQ: `putMessages` "
           "of a batch that its client encoded)", "put put_messages", "put batch", step=BATCH),
    PutRow("put_columns", "`put_columns`, 1,000 bodies for one queue with equal properties",
           "put put_columns"),
    PutRow("aput", "`await aput`, one by one", "put aput"),
    PutRow("put_message_dispatched", "`put_message`, one by one, and until all is dispatched",
           "put_dispatched put_message", "put_dispatched single", "put fresh + rebuild", step=0),
    PutRow("put_many_dispatched", "`put_many`, and until all is dispatched",
           "put_dispatched put_many", "put_dispatched single", "put fresh + rebuild", step=0),
)  # fmt: skip
#: The bare loop on pages that are mapped already, beside its ``put fresh``.
RESIDENT = "put resident"
ASKS = (
    AskRow("get_32", "`get_message` of 32 to the end of all queues; messages not looked at",
           "get 32 views {queues} {all}", "get 32 views {queues} {all}",
           "get 32 views {queues} {all}"),
    AskRow("get_32_body", "the same, each body copied", "get 32 body {queues} {all}",
           "get 32 body {queues} {all}", "get 32 body {queues} {all}"),
    AskRow("get_1", "`get_message` of 1", "get 1 views {queues} {count}",
           "get 1 views {queues} {count}", "get 1 views {queues} {count}", most=100_000),
    AskRow("query", "`query_message(topic, key, 1)`", "query {count}", "query {count}",
           "query {count}", most=20_000),
    AskRow("find", "`find(topic=, key=)`, all hits", "find {count}", "query {count}",
           "query {count}", most=20_000),
    AskRow("keys", "`index_offsets`, all keys of a topic in one call", "keys {count}",
           "query {count}", "query {count}", most=20_000),
    AskRow("by_id", "`look_message_by_id` and the body", "id {count}", "id {count}", most=20_000),
    AskRow("by_time", "`get_offset_in_queue_by_time`", "time {count}", "time {count}",
           most=20_000),
    AskRow("scan", "`scan()`; messages not looked at", "scan", limit="get 32 views {queues} {all}"),
    AskRow("scan_body", "`scan()`, each body copied", "scan_body",
           limit="get 32 body {queues} {all}"),
    AskRow("scan_arrow", '`scan_arrow("core")`, CRCs compared', "scan_arrow",
           limit="reopen {folder}"),
    AskRow("filter_units", "`filter_units`, one tag, all queues; per unit", "filter_units",
           limit="filter_units"),
)  # fmt: skip
#: Rows that close and open the store; what they do is in ``rounds.py``.
OPENS = {
    "open_clean": "open a store that was closed; per open, not per message",
    "rebuild": "open without queues and index, until all is dispatched",
    "recover": "open the image of a killed process, until all is dispatched; CRCs compared",
}


def _durable(width: int, waiters: str, call: str, most: int) -> SharedRow:
    """So many durable puts under way; the bare loop syncs once for all of them."""
    waiter = waiters.removesuffix("s") if width == 1 else waiters
    line = f"put_{waiters} {width}"
    return SharedRow(
        f"sync_{width}_{waiter}", f"`SYNC_FLUSH`, {width:,} {waiter}: {call}", line, line,
        "put synced", limit_step=width, most=most,
    )  # fmt: skip


def _threads(width: int) -> SharedRow:
    name = f"{width} thread{'' if width == 1 else 's'}"
    line = f"put_threads {width}"
    return SharedRow(
        f"put_{name.replace(' ', '_')}", f"`put_message` by {name}", line, line, "put fresh",
        most=THREADS_MOST,
    )  # fmt: skip


_BESIDE = "put_beside 32"
_FUTURES = "`await aput` (RocketMQ: `asyncPutMessage`)"
SHARED = (
    # No 1,000 threads: RocketMQ keeps a buffer of 4 MiB for each thread that puts.
    Family("group_commit", "sync", (
        _durable(1, "threads", "`put_message`", 500),
        _durable(64, "threads", "`put_message`", 20_000),
        _durable(1, "futures", _FUTURES, 500),
        _durable(64, "futures", _FUTURES, 20_000),
        _durable(1000, "futures", _FUTURES, 60_000),
    )),
    Family("threads", "async", (
        _threads(1), _threads(2), _threads(4),
        SharedRow("put_beside_reader", "`put_message` by 1 thread beside a thread that pulls by 32 "
                  "and copies each body", _BESIDE, _BESIDE, most=THREADS_MOST),
        SharedRow("read_beside_writer", "the same, until the reader has every message", _BESIDE,
                  _BESIDE, most=THREADS_MOST, answer="read"),
    )),
)  # fmt: skip
#: Names of rows by family.
FAMILIES: dict[str, tuple[str, ...]] = {
    "puts": tuple(row.name for row in PUTS),
    **{family.name: tuple(row.name for row in family.rows) for family in SHARED},
    "reads": tuple(row.name for row in ASKS),
    "opens": tuple(OPENS),
}
#: What a race of twenty minutes has time for.
SHORT = (
    "put_message", "put", "put_many", "put_columns", *FAMILIES["group_commit"],
    *FAMILIES["threads"], "get_32", "get_32_body", "get_1", "query", "find", "keys", "by_id",
    "scan_body", "scan_arrow", "filter_units", *FAMILIES["opens"], "peers",
)  # fmt: skip
NAMES = tuple(name for names in FAMILIES.values() for name in names)
