"""Apache RocketMQ's on-disk message store as a Python library: the same files, at native speed."""

from __future__ import annotations

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
    RocketStoreError,
    ServiceFailedError,
    StoreClosedError,
    StoreFullError,
    StoreLockedError,
    UnsafePathError,
)
from rocketstore.filter import MessageFilter, TagFilter
from rocketstore.get_message import GetMessageResult
from rocketstore.message import Message, MessageBatch, StoredMessage
from rocketstore.queries import QueryMessageResult
from rocketstore.recovery import RecoveryReport
from rocketstore.status import (
    AppendMessageStatus,
    FlushDiskType,
    GetMessageStatus,
    PutMessageStatus,
)
from rocketstore.store import DefaultMessageStore, open

PutMessageResult = kernels.commit_log.PutMessageResult
PutManyResult = kernels.commit_log.PutManyResult
__version__ = "0.1.0"

__all__ = [
    "AppendMessageStatus",
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
    "RecoveryReport",
    "RocketStoreError",
    "ServiceFailedError",
    "StoreClosedError",
    "StoreFullError",
    "StoreLockedError",
    "StoredMessage",
    "TagFilter",
    "UnsafePathError",
    "open",
]
