"""Which consumer of this process reads which queues for which group."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection
from typing import Any, NamedTuple

from rocketstore import kernels
from rocketstore.errors import ConsumerConflictError
from rocketstore.lock_order import LockRank

#: A store's directory (device, inode) and a group.
GroupOfStore = tuple[int, int, str]


class _Claim(NamedTuple):
    """``queue_ids`` is ``None`` for all queues of the topic, also later ones."""

    owner: weakref.ReferenceType[Any]
    topic: str
    queue_ids: frozenset[int] | None

    def meets(self, topic: str, queue_ids: frozenset[int] | None) -> bool:
        """Return whether a queue is of both."""
        if self.topic != topic:
            return False
        return self.queue_ids is None or queue_ids is None or bool(self.queue_ids & queue_ids)


_lock = kernels.locks.OrderedLock(LockRank.LEAF)
_claims: dict[GroupOfStore, list[_Claim]] = {}  # guarded by: _lock


def _forget() -> None:
    """In a forked child no consumer of the parent works."""
    _claims.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def group_of_store(root: str | os.PathLike[str], group: str) -> GroupOfStore:
    """Return what identifies a group of a store, by whatever path it was opened."""
    found = os.stat(root)
    return found.st_dev, found.st_ino, group


def claim(
    owner: Any,
    group: GroupOfStore,
    topics: Collection[str],
    queue_ids: Collection[int] | None,
) -> None:
    """Take queues for a consumer until it is released or garbage.

    Raises
    ------
    ConsumerConflictError
        Another consumer has one of them.
    """
    wanted = None if queue_ids is None else frozenset(queue_ids)
    with _lock:
        claims = _living(group)
        for topic in topics:
            for other in claims:
                if other.meets(topic, wanted):
                    raise ConsumerConflictError(_words(group[2], topic, wanted))
        claims += [_Claim(weakref.ref(owner), topic, wanted) for topic in topics]
        _claims[group] = claims


def claim_if_free(owner: Any, group: GroupOfStore, topic: str) -> bool:
    """Take a topic unless another consumer has it; return whether ``owner`` has it now."""
    with _lock:
        claims = _living(group)
        for other in claims:
            if other.meets(topic, None):
                return other.owner() is owner
        _claims[group] = [*claims, _Claim(weakref.ref(owner), topic, None)]
        return True


def release(owner: Any, group: GroupOfStore) -> None:
    """Give all queues of a consumer back."""
    with _lock:
        left = [one for one in _living(group) if one.owner() is not owner]
        if left:
            _claims[group] = left
        else:
            _claims.pop(group, None)


def _living(group: GroupOfStore) -> list[_Claim]:
    return [one for one in _claims.get(group, ()) if one.owner() is not None]


def _words(group: str, topic: str, queue_ids: frozenset[int] | None) -> str:
    which = "" if queue_ids is None else f", queues {', '.join(map(str, sorted(queue_ids)))}"
    return (
        f"the group {group} consumes {topic}{which} already, in this process; close that consumer, "
        "share it between threads, or give each its own queue_ids"
    )
