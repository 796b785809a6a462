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
    from rocketstore.cleaning.plan import CleanedFile, CleanReason, CleanReport
    from rocketstore.directory.place import file_system_of
    from rocketstore.log.damage import CutRange, DamagedRange
    from rocketstore.query.arrow_scan import ArrowScan
    from rocketstore.recovery.report import RecoveryReport
    from rocketstore.repair.recover import RecoverReport, recover
    from rocketstore.repair.salvage import SalvagedSegment, SalvageReport, salvage
    from rocketstore.repair.salvage_plan import LostOfTopic, Placeholder
    from rocketstore.survey.facts import StoreFacts
    from rocketstore.survey.pointers import PointersPastEnd
    from rocketstore.verify.report import Finding, VerifyReport


__all__ = [
    "AppendMessageStatus",
    "ArrowScan",
    "CleanReason",
    "CleanReport",
    "CleanedFile",
    "ConfigError",
    "CorruptConsumeQueueError",
    "CorruptIndexError",
    "CorruptMessageError",
    "CorruptionError",
    "CutRange",
    "DamagedRange",
    "DecodeError",
    "DefaultMessageStore",
    "Finding",
    "FlushDiskType",
    "ForkedStoreError",
    "GetMessageResult",
    "GetMessageStatus",
    "LostOfTopic",
    "MappedFileError",
    "Message",
    "MessageBatch",
    "MessageFilter",
    "MessageStoreConfig",
    "Placeholder",
    "PointersPastEnd",
    "PutManyResult",
    "PutMessageResult",
    "PutMessageStatus",
    "QueryMessageResult",
    "RecoverReport",
    "RecoveryReport",
    "ReentrantCallError",
    "RocketStoreError",
    "SalvageReport",
    "SalvagedSegment",
    "ServiceFailedError",
    "StoreClosedError",
    "StoreFacts",
    "StoreFullError",
    "StoreLockedError",
    "StoredMessage",
    "TagFilter",
    "UnsafePathError",
    "VerifyReport",
    "file_system_of",
    "open",
    "recover",
    "salvage",
]


#: Names that are imported on first use, and their modules.
_LATER = {
    "CleanReason": "cleaning.plan",
    "CleanReport": "cleaning.plan",
    "CleanedFile": "cleaning.plan",
    "file_system_of": "directory.place",
    "CutRange": "log.damage",
    "DamagedRange": "log.damage",
    "ArrowScan": "query.arrow_scan",
    "RecoveryReport": "recovery.report",
    "RecoverReport": "repair.recover",
    "recover": "repair.recover",
    "SalvageReport": "repair.salvage",
    "SalvagedSegment": "repair.salvage",
    "salvage": "repair.salvage",
    "LostOfTopic": "repair.salvage_plan",
    "Placeholder": "repair.salvage_plan",
    "StoreFacts": "survey.facts",
    "PointersPastEnd": "survey.pointers",
    "Finding": "verify.report",
    "VerifyReport": "verify.report",
}


def __getattr__(name: str) -> Any:
    """Import rarely used names on first use, so that importing the package stays fast."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"rocketstore.{module}"), name)


def __dir__() -> list[str]:
    """The public names, and no module that they are made of."""
    return sorted([*__all__, "__version__"])
