"""Apache RocketMQ's on-disk message store as a Python library: the same files, at native speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketstore import kernels
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
from rocketstore.message import Message, MessageBatch, StoredMessage
from rocketstore.results import GetMessageResult, QueryMessageResult
from rocketstore.status import (
    AppendMessageStatus,
    FlushDiskType,
    GetMessageStatus,
    PutMessageStatus,
)
from rocketstore.store import DefaultMessageStore, open

if TYPE_CHECKING:
    from rocketstore.cleanup import CleanedFile, CleanReport
    from rocketstore.log_salvage import SalvageReport, salvage
    from rocketstore.recovery_report import RecoveryReport
    from rocketstore.store_recovery import RecoverReport, recover

PutMessageResult = kernels.commit_log.PutMessageResult
PutManyResult = kernels.commit_log.PutManyResult
__version__ = "0.1.0"

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
    """Import what only few callers name on first use, so that importing the package stays quick."""
    if name == "RecoveryReport":
        from rocketstore.recovery_report import RecoveryReport

        return RecoveryReport
    if name in ("SalvageReport", "salvage"):
        from rocketstore import log_salvage

        return getattr(log_salvage, name)
    if name in ("RecoverReport", "recover"):
        from rocketstore import store_recovery

        return getattr(store_recovery, name)
    if name in ("CleanReport", "CleanedFile"):
        from rocketstore import cleanup

        return getattr(cleanup, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
