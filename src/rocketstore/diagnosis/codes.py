"""The codes of ``doctor``: severity, meaning for the data, what a broker does, next command."""

from __future__ import annotations

import dataclasses
import os
import shlex
from typing import NamedTuple

#: From mild to grave.
SEVERITIES = ("note", "warning", "error", "critical")
#: What a finding means for data, from mild to grave.
DATA_EFFECTS = ("none", "slow-start", "late", "doubled", "invisible", "lost")


class Code(NamedTuple):
    """A stable name for a kind of finding.

    Attributes
    ----------
    name, severity : str
        ``severity`` is the default; the place may make a finding graver or milder.
    data : str
        The default effect on the data, one of ``DATA_EFFECTS``.
    broker : str
        The default effect on a broker: ``none``, ``mends``, ``cuts``, ``deletes``,
        ``loses-keys``, ``hides``, ``repeats``, ``slow``, ``refuses`` or ``hangs``.
    what, means, does : str
        The fault, what it means for data, and what a broker does with it: a sentence each.
    command : str
        The next command of rocketstore, ``""`` if a person must act first.
    """

    name: str
    severity: str
    data: str
    broker: str
    what: str
    means: str
    does: str
    command: str

    def document(self) -> dict[str, str]:
        """Return the values by their JSON names."""
        return dict(zip(self._fields, self, strict=True))


_N, _W, _E, _C = SEVERITIES
_TABLE: tuple[tuple[str, ...], ...] = (
    ("store.none", _C, "none", "none", "There is no store at this path",
     "Nothing can be read here.", "It creates an empty store.", ""),
    ("store.elsewhere", _C, "invisible", "none", "The log is elsewhere or its disk is not mounted",
     "Messages cannot be read until the log is back.",
     "It starts with an empty log and destroys the queues.", ""),
    ("store.log-missing", _C, "lost", "deletes",
     "Checkpoint, queues or index know of a log that is not there",
     "All messages are gone unless the log returns.",
     "It starts with an empty log and destroys the queues.", ""),
    ("store.unclean", _W, "slow-start", "slow", "The file abort exists: the last stop was unclean",
     "Bytes that were not synced may be missing.",
     "It scans the log again and deletes index files newer than the checkpoint.", "plan"),
    ("store.in-use", _N, "none", "refuses", "Another process holds the lock",
     "Findings about growing files may be transient.", "A second broker refuses to start.", ""),
    ("store.geometry", _C, "invisible", "refuses", "File sizes contradict the configuration",
     "Nothing is lost; the files are read at wrong places.", "It refuses to start.", ""),
    ("store.mixed", _C, "invisible", "hides", "Files of two geometries or of two stores are mixed",
     "Some messages belong elsewhere, their own are missing.",
     "It serves wrong bytes or hides messages.", ""),
    ("store.foreign", _E, "none", "refuses", "A foreign entry is in a folder of mapped files",
     "Nothing is lost.", "It refuses to start if the entry is no file of the right length.",
     "plan"),
    ("store.odd-file", _E, "invisible", "refuses", "Something else is in the place of a file",
     "What the file held cannot be read.", "It refuses to start or blocks.", ""),
    ("store.owner", _E, "invisible", "refuses", "Owner or mode prevents reading or writing",
     "Nothing is lost; it cannot be read by this user.", "It refuses to start as this user.", ""),
    ("store.link", _E, "invisible", "none", "A link leaves the root, or a file has two names",
     "What the link names was not read.", "It follows the link.", ""),
    ("store.salvaged", _N, "lost", "none", "Placeholders of an earlier repair are in the log",
     "The messages that they replace were lost before that repair.",
     "It serves the placeholders as empty messages.", ""),
    ("store.room", _W, "none", "refuses", "The disk is nearly full",
     "New messages may be refused.", "It refuses puts above its limit and deletes old files.",
     "clean"),
    ("store.inodes", _W, "none", "refuses", "The file system has hardly any inodes left",
     "New queues cannot be created.", "It stops when it cannot create a file.", ""),
    ("store.maps", _W, "none", "refuses", "The store has more files than memory maps are allowed",
     "Nothing is lost.", "It stops when a map is refused (vm.max_map_count).", ""),
    ("store.sparse", _N, "none", "none", "Files have large holes",
     "A copy may need more room than the disk shows.", "Nothing.", ""),
    ("log.torn", _W, "lost", "cuts", "Half a record at the end of the log",
     "A message that was being written is lost.", "It truncates the log at the record.", "plan"),
    ("log.end-missing", _C, "lost", "cuts", "The log ends below what was synced",
     "Messages that were acknowledged are lost.", "It truncates queues at the log's end.",
     "plan"),
    ("log.ghost", _N, "none", "none", "A record at a wrong, lower offset",
     "Nothing is lost; the record is a remainder.", "It dispatches the record twice.", ""),
    ("log.stale-tail", _W, "none", "repeats", "Old records follow a torn one",
     "Nothing new is lost.", "It may take old records for new ones.", "plan"),
    ("log.record.zeros", _C, "lost", "deletes", "Zeros inside the log, good records after them",
     "The messages of this range are lost.",
     "If recovery reads the place, it deletes every later message.", "plan"),
    ("log.record.crc", _C, "lost", "deletes", "A record's checksum is wrong",
     "The message cannot be trusted.",
     "If recovery reads the place, it deletes every later message.", "plan"),
    ("log.record.shape", _C, "lost", "deletes", "Lengths, magic or offset of a record are wrong",
     "The messages of this range are lost.",
     "If recovery reads the place, it deletes every later message.", "plan"),
    ("log.segment.missing", _C, "lost", "hides", "A segment inside the log is missing",
     "All messages of the segment are lost.",
     "It starts, counts them still, and skips them silently.", "plan"),
    ("log.segment.short", _C, "invisible", "refuses", "A segment is shorter than the others",
     "Messages past its end are lost; the others cannot be served.", "It refuses to start.",
     "plan"),
    ("log.segment.long", _E, "invisible", "refuses", "A segment is longer than the others",
     "Nothing is lost.", "It refuses to start.", "plan"),
    ("log.segment.empty", _E, "none", "refuses", "A segment has 0 bytes",
     "If it held messages, they are lost.",
     "4.9 refuses to start; 5.1.3 and later delete the file if it is the last.", "plan"),
    ("log.segment.name", _C, "invisible", "hides", "The records in a segment contradict its name",
     "Messages are complete, but served at wrong places.", "It serves wrong bytes.", "plan"),
    ("log.segment.unreadable", _C, "invisible", "refuses", "A segment cannot be read",
     "Its messages cannot be read now.", "It refuses to start.", ""),
    ("log.marker", _E, "none", "cuts", "The end marker of a segment is wrong",
     "Nothing is lost if the next segment is good.", "If recovery reads it, it truncates there.",
     "plan"),
    ("log.clock", _N, "none", "none", "Store times jump backwards",
     "Search by time may miss messages.", "Search by time may miss messages.", ""),
    ("queue.missing", _E, "invisible", "hides", "The folder of all queues, or of one, is missing",
     "Messages are in the log, but pulls do not find them.",
     "It rebuilds what its recovery reads, and hides the rest.", "plan"),
    ("queue.file.missing", _E, "invisible", "hides", "A file of a queue is missing",
     "Messages are in the log, but pulls do not find them.",
     "It starts and skips the messages.", "plan"),
    ("queue.file.short", _C, "invisible", "refuses", "A file of a queue has a wrong length",
     "Nothing is lost; the units can be rebuilt.", "It refuses to start.", "plan"),
    ("queue.file.empty", _E, "invisible", "hides", "A file of a queue has 0 bytes or only zeros",
     "Messages are in the log, but pulls do not find them.",
     "0 bytes: it refuses to start, or deletes the last file. Zeros: it truncates the queue there.",
     "plan"),
    ("queue.unit.zeros", _E, "invisible", "hides", "Units of a queue are zeroed",
     "Messages are in the log, but pulls do not find them.",
     "It truncates the queue there, if the place is in the last three files.", "plan"),
    ("queue.unit.wrong", _E, "invisible", "hides", "A unit does not name its record",
     "A pull gives another message, or none.", "It serves what the unit names.", "plan"),
    ("queue.unit.beyond", _E, "none", "cuts", "Units name records past the log's end",
     "The records that they name are gone.", "It truncates the queue at the log's end.", "plan"),
    ("queue.unit.gap", _E, "lost", "none", "Queue offsets are missing in the records",
     "Messages between them are lost, or a wrong bit moved them to another queue.",
     "It skips the gap.", "plan"),
    ("queue.unit.repeat", _E, "doubled", "hides", "Two records have the same queue offset",
     "One of the two messages is not served.", "It serves one of them.", ""),
    ("queue.behind", _W, "late", "mends", "The log is ahead of the queues",
     "Messages are served after the next start.",
     "It dispatches the rest, if its recovery reads it.", "plan"),
    ("queue.orphan", _N, "none", "none", "A queue belongs to no known topic",
     "Consumers cannot find its topic.", "It keeps the files and offers no topic.", ""),
    ("index.missing", _E, "invisible", "loses-keys", "The folder index is missing",
     "Messages are served; keys do not find them.",
     "It indexes only what its recovery reads.", "plan"),
    ("index.file.size", _E, "invisible", "loses-keys", "An index file has a wrong length",
     "Keys of this file may find nothing.",
     "It extends the file, or reads slots at wrong places.", "plan"),
    ("index.file.header", _E, "invisible", "loses-keys",
     "Counts or times of an index file are not explained by its entries",
     "Keys of this file may find nothing.", "It believes the header.", "plan"),
    ("index.file.name", _N, "none", "none", "The name of an index file is no time",
     "Its keys find nothing.", "It ignores the file.", ""),
    ("index.file.beyond", _E, "none", "none", "Entries name offsets past the log's end",
     "The records that they name are gone.", "New keys below that offset are not indexed.",
     "plan"),
    ("index.file.crashed", _W, "invisible", "loses-keys",
     "An index file is newer than the checkpoint, and the last stop was unclean",
     "Keys may find nothing after the next start.",
     "It deletes the file and indexes only what its recovery reads.", "plan"),
    ("index.chain", _E, "invisible", "hangs", "A chain in an index file loops or is broken",
     "Lookups of some keys find nothing.", "A lookup that meets a loop never returns.", "plan"),
    ("index.behind", _W, "invisible", "loses-keys", "The log is ahead of the index",
     "Keys of the newest messages find nothing.",
     "It indexes the rest, if its recovery reads it.", "plan"),
    ("index.entry.missing", _E, "invisible", "loses-keys", "Keys of records are in no index file",
     "Keys do not find these messages.", "Nothing.", "plan"),
    ("index.entry.wrong", _E, "invisible", "loses-keys", "An index entry is another record's",
     "A key may find a wrong message, or none.", "It believes the entry.", "plan"),
    ("index.entry.double", _N, "doubled", "repeats", "Keys are in the index twice",
     "A query may give a message twice.", "It gives the message twice.", "plan"),
    ("checkpoint.missing", _W, "slow-start", "slow", "There is no checkpoint",
     "Nothing is lost.", "After an unclean stop it checks the whole log.", "plan"),
    ("checkpoint.size", _W, "slow-start", "slow", "The checkpoint has a wrong length",
     "Nothing is lost.", "Missing bytes count as 0: it checks more of the log.", "plan"),
    ("checkpoint.zero", _W, "slow-start", "slow", "The times of the checkpoint are 0",
     "Nothing is lost.", "After an unclean stop it checks the whole log.", "plan"),
    ("checkpoint.future", _E, "invisible", "hides", "A time of the checkpoint is in the future",
     "After an unclean stop older messages may not reach the queues.",
     "After an unclean stop it recovers the newest file only.", "plan"),
    ("checkpoint.past", _N, "slow-start", "slow", "The checkpoint is much older than the log",
     "Nothing is lost.", "After an unclean stop it checks more of the log.", ""),
    ("checkpoint.offset", _E, "invisible", "hides",
     "An offset of the checkpoint is no record's start, or past the log's end",
     "After an unclean stop older messages may not reach the queues.",
     "5.5 begins to dispatch there.", "plan"),
    ("config.broken", _C, "lost", "refuses", "A table below config and its .bak cannot be read",
     "What the table held is lost.", "It refuses to start.", "plan"),
    ("config.bak-used", _N, "none", "mends", "A table is broken or missing; its .bak is good",
     "The last changes of the table are lost.", "It reads the .bak; 5.4 and later delete the "
     "broken file.", "plan"),
    ("config.empty", _E, "lost", "none", "A table below config is empty and has no good .bak",
     "What the table held is lost.", "It starts with an empty table.", "plan"),
    ("config.topic-missing", _E, "invisible", "none", "Queues have no topic in topics.json",
     "Consumers cannot find the topic.", "It keeps the queues and offers no topic.", "plan"),
    ("config.topic-extra", _N, "none", "none", "A topic has no queues",
     "Nothing is lost; no message was put, or all expired.", "Nothing.", ""),
    ("config.queue-type", _E, "invisible", "refuses", "A topic's type contradicts its folders",
     "Nothing is lost.", "5.x refuses to start.", ""),
    ("config.consumer-beyond", _E, "lost", "hides", "Offsets of consumers are past their queue",
     "The group does not get the next messages.", "It waits until the queue reaches the offset.",
     "plan"),
    ("config.consumer-below", _W, "lost", "none", "Offsets of consumers are below the minimum",
     "Messages expired before the group read them.", "It moves the group to the minimum.", "plan"),
    ("config.delay-beyond", _E, "late", "mends", "Delay offsets are past their queue",
     "Delayed messages may not be delivered.",
     "It sets the offset to the end of its queue.", "plan"),
    ("config.group-missing", _N, "none", "none", "A group has offsets, but is in no table",
     "Nothing is lost.", "It creates the group when a consumer registers.", ""),
    ("delay.overdue", _N, "late", "mends", "Delayed messages are due and not delivered",
     "They are late.", "It delivers them after its start.", "delay"),
    ("timer.behind", _W, "late", "mends", "The timer wheel lags its queue",
     "Timed messages are late.", "It reads the queue again.", "timer"),
    ("timer.beyond", _E, "lost", "hides", "The timer's files contradict the log or each other",
     "Timed messages may not be delivered.", "It may skip or repeat timed messages.", "timer"),
    ("transaction.undecided", _N, "late", "mends", "Half messages are undecided",
     "They are not served until they are decided.", "It asks the producers.", "transactions"),
)  # fmt: skip

#: All codes by name, in the order of the documentation.
CODES: dict[str, Code] = {row[0]: Code(*row) for row in _TABLE}


@dataclasses.dataclass(frozen=True)
class Action:
    """What to do next.

    Attributes
    ----------
    command : list of str
        Words to type as they are; empty if a person must act first.
    why : str
    seconds, room_nbytes : int or None
        Estimates; ``None`` if unknown.
    safe : bool
        Whether it changes nothing.
    """

    command: list[str]
    why: str
    seconds: int | None = None
    room_nbytes: int | None = None
    safe: bool = True

    def words(self) -> str:
        """Return the command and why, as one line for people."""
        return f"{shlex.join(self.command)}: {self.why}" if self.command else self.why

    def document(self) -> dict[str, object]:
        """Return the values by their JSON names."""
        return {
            "command": self.command,
            "why": self.why,
            "seconds": self.seconds,
            "roomBytes": self.room_nbytes,
            "safe": self.safe,
        }


#: What a person must settle before a plan is made.
BLOCKING_CODES = frozenset(
    {
        *("store.none", "store.elsewhere", "store.log-missing", "store.in-use", "store.geometry"),
        *("store.mixed", "store.odd-file", "store.owner", "store.link", "log.segment.unreadable"),
        *("config.queue-type", "timer.beyond"),
    }
)
#: What no step of a plan mends, and what stops none.
LEFT_CODES = frozenset(("queue.unit.gap", "queue.unit.repeat", "timer.behind", "store.maps"))
_WHY = {
    "plan": "writes down the steps that mend it, and all that is lost; nothing is changed",
    "salvage": "shows what of the log can be saved, and what is lost",
    "clean": "shows which expired files can be deleted",
    "delay": "lists what waits for delivery",
    "timer": "lists the timed messages",
    "transactions": "lists the undecided transactions",
    "doctor": "compares log, queues, index and tables",
}
_MORE_WORDS = {"salvage": ("--what-if",), "clean": ("--what-if",)}
_BY_HAND = {
    "store.none": "pass the directory that holds commitlog",
    "store.elsewhere": "mount the log's disk, or pass its folder with --commit-log",
    "store.log-missing": "bring the log back before anything is started",
    "store.in-use": "ask again when the other process has stopped",
    "store.geometry": "give the broker the sizes that the files have",
    "store.mixed": "put back the store's own files",
    "store.odd-file": "move away what is in the place of the file",
    "store.owner": "give this user access to the named files",
    "store.link": "replace the link by the file, or examine the place that it names",
    "log.segment.unreadable": "give this user read access, or restore the segment",
    "config.queue-type": "set queue.type of the topic to the type of its queues",
    "timer.beyond": "restore timerwheel, timerlog and config/timercheck together from a backup",
    "queue.unit.repeat": "see rocketstore verify; a segment of another store may be in the log",
}
#: What saves more than a plan can, if it is possible.
_FIRST = {
    "log.segment.missing": "if a copy of the missing segment exists, put it back first",
    "log.end-missing": "if a copy of the log's last segments exists, put it back first",
    "store.foreign": "if a foreign file is a renamed or compressed segment, give it its name back",
    "config.broken": "if a backup of the broken tables exists, put it back first",
    "config.empty": "if a backup of the empty tables exists, put it back first",
}


def command_words(command: str, store: str) -> list[str]:
    """Return the words of a command of rocketstore over a store; it changes nothing."""
    if store.startswith("-"):  # no option
        store = os.path.join(os.curdir, store)
    words = ["rocketstore", command, store, *_MORE_WORDS.get(command, ())]
    return [*words, "-o", _plan_file(store)] if command == "plan" else words


def _plan_file(store: str) -> str:
    """Return where a plan is written: the working directory, unless that is inside the store."""
    root = os.path.realpath(store)
    if os.path.commonpath([os.path.realpath(os.curdir), root]) == root:
        return os.path.join(os.path.dirname(root), "plan.json")
    return "plan.json"


def command_action(command: str, store: str) -> Action:
    """Return a command, which changes nothing, as a next step."""
    return Action(command_words(command, store), _WHY[command])


def action_for(code: str, store: str) -> Action | None:
    """Return the next step for a finding with this code; ``None`` if there is nothing to do."""
    if code in _BY_HAND:
        return Action([], _BY_HAND[code])
    command = CODES[code].command
    return command_action(command, store) if command else None


def first_for(code: str) -> Action | None:
    """Return what a person may do before the action of a code, to save more; ``None``: nothing."""
    why = _FIRST.get(code)
    return None if why is None else Action([], why)


def explanation(code: str, store: str) -> list[tuple[str, Action]]:
    """Return what a code means, as headings and steps; most steps are a sentence without command.

    Parameters
    ----------
    code : str
    store : str
        The store that the commands name.

    Raises
    ------
    KeyError
        For an unknown code.
    """
    found = CODES[code]
    lines = [("Data", Action([], found.means)), ("A broker", Action([], found.does))]
    first, following = first_for(code), action_for(code, store)
    if first is not None:
        lines.append(("First", first))
    lines.append(("Next", following or Action([], "nothing is to be done")))
    return lines
