"""Apache RocketMQ's on-disk message store as a Python library: the same files, at native speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketstore.config import MessageStoreConfig
from rocketstore.errors import (
    ConfigError,
    CorruptConsumeQueueError,
    CorruptIndexError,
    CorruptionError,
    CorruptMessageError,
    DecodeError,
    ForkedStoreError,
    MappedFileError,
    ReentrantCallError,
    RocketStoreError,
    ServiceFailedError,
    StoreClosedError,
    StoreFullError,
    StoreLockedError,
    UnsafePathError,
)
from rocketstore.filter import MessageFilter, TagFilter
from rocketstore.message import (
    Message,
    MessageBatch,
    PutManyResult,
    PutMessageResult,
    StoredMessage,
)
from rocketstore.query.results import GetMessageResult, QueryMessageResult
from rocketstore.status import (
    AppendMessageStatus,
    FlushDiskType,
    GetMessageStatus,
    PutMessageStatus,
)
from rocketstore.store.default_message_store import DefaultMessageStore, open
from rocketstore.version import __version__ as __version__

if TYPE_CHECKING:
    from rocketstore.cleaning.plan import CleanedFile, CleanReport
    from rocketstore.recovery.report import RecoveryReport
    from rocketstore.repair.recover import RecoverReport, recover
    from rocketstore.repair.salvage import SalvageReport, salvage


__all__ = [
    "AppendMessageStatus",
    "CleanReport",
    "CleanedFile",
    "ConfigError",
    "CorruptConsumeQueueError",
    "CorruptIndexError",
    "CorruptMessageError",
    "CorruptionError",
    "DecodeError",
    "DefaultMessageStore",
    "FlushDiskType",
    "ForkedStoreError",
    "GetMessageResult",
    "GetMessageStatus",
    "MappedFileError",
    "Message",
    "MessageBatch",
    "MessageFilter",
    "MessageStoreConfig",
    "PutManyResult",
    "PutMessageResult",
    "PutMessageStatus",
    "QueryMessageResult",
    "RecoverReport",
    "RecoveryReport",
    "ReentrantCallError",
    "RocketStoreError",
    "SalvageReport",
    "ServiceFailedError",
    "StoreClosedError",
    "StoreFullError",
    "StoreLockedError",
    "StoredMessage",
    "TagFilter",
    "UnsafePathError",
    "open",
    "recover",
    "salvage",
]


def __getattr__(name: str) -> Any:
    """Import rarely used names on first use, so that importing the package stays fast."""
    if name == "RecoveryReport":
        from rocketstore.recovery.report import RecoveryReport

        return RecoveryReport
    if name in ("SalvageReport", "salvage"):
        from rocketstore.repair import salvage as log_salvage

        return getattr(log_salvage, name)
    if name in ("RecoverReport", "recover"):
        from rocketstore.repair import recover as store_recovery

        return getattr(store_recovery, name)
    if name in ("CleanReport", "CleanedFile"):
        from rocketstore.cleaning import plan as cleanup

        return getattr(cleanup, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and no module that they are made of."""
    return sorted([*__all__, "__version__"])
