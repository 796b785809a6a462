"""All transactions of a log, decided or not."""

from __future__ import annotations

from collections.abc import Iterator

from rocketstore import formats
from rocketstore.status import TransactionState
from rocketstore.transaction.log_reading import (
    Chains,
    Decision,
    Half,
    Identity,
    Progress,
    TransactionLog,
    half_of,
    identity_of,
)


class History:
    """Reads how every transaction was decided whose half message is in the log.

    Parameters
    ----------
    log : TransactionLog
    progress : Progress
        Half messages before it are decided, whether or not the log still says how.
    """

    def __init__(self, log: TransactionLog, progress: Progress) -> None:
        self._log = log
        self._progress = progress

    def read(self) -> Iterator[tuple[Half, Decision]]:
        """Yield the newest copy of each half message, and the decision."""
        named = self._log.named_in_ops()
        chains = self._chains(named)
        if not chains:
            return
        oldest = min(chain[0].offset for chain in chains)
        commits, by_identity = self._commits(chains, oldest)
        discarded = {
            half_of(message).mark: message
            for message in self._log.newest_records(formats.TOPIC_DISCARDED, oldest)
        }
        for chain in chains:
            newest = chain[-1]
            found = [commits[half.offset] for half in chain if half.offset in commits]
            found += by_identity.get(newest.identity, [])
            if found:
                record = self._log.record(min(found))
                yield newest, Decision(TransactionState.COMMIT, record)
            elif newest.mark in discarded:
                yield newest, Decision(TransactionState.DISCARDED, discarded[newest.mark])
            elif newest.queue_offset in named or newest.queue_offset < self._progress.half:
                yield newest, Decision(TransactionState.ROLLBACK, None)
            else:
                yield newest, Decision(TransactionState.UNKNOWN, None)

    def _chains(self, named: dict[int, int]) -> list[list[Half]]:
        """Return half messages with their copies, in the order of the first ones."""
        chains = Chains(named)
        for message in self._log.records(formats.TOPIC_HALF):
            chains.add(half_of(message))
        return chains.all

    def _commits(
        self, chains: list[list[Half]], oldest: int
    ) -> tuple[dict[int, int], dict[Identity, list[int]]]:
        """Return the offsets of committed messages: by half message, else by what they share."""
        offsets = {half.offset for chain in chains for half in chain}
        found: dict[int, int] = {}
        others: dict[Identity, list[int]] = {}
        for prepared, offset in self._log.commits(oldest):
            if prepared in offsets:
                found.setdefault(prepared, offset)
                continue
            record = self._log.record(offset)
            if record is not None and record.unique_key:
                others.setdefault(identity_of(record), []).append(offset)
        return found, others
