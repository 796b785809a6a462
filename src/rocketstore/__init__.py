"""Apache RocketMQ's on-disk message store as a Python library: the same files, at native speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketstore.config import MessageStoreConfig
from rocketstore.errors import (
    ConfigError,
    ConsumerConflictError,
    ConsumerError,
    CorruptConsumeQueueError,
    CorruptIndexError,
    CorruptionError,
    CorruptMessageError,
    DecodeError,
    FilterError,
    FilterEvaluationError,
    FilterSyntaxError,
    FilterWarning,
    ForkedStoreError,
    MappedFileError,
    OffsetOutOfRangeError,
    ReentrantCallError,
    RepairRefusedError,
    RocketStoreError,
    ServiceFailedError,
    SourceChangedError,
    StoreClosedError,
    StoreFullError,
    StoreLockedError,
    TransactionError,
    TransactionNotFoundError,
    TransactionStateError,
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
    TransactionState,
)
from rocketstore.store.default_message_store import DefaultMessageStore, open
from rocketstore.version import __version__ as __version__

if TYPE_CHECKING:
    from rocketstore.broker_file.conversion import ConvertedConfig
    from rocketstore.broker_file.entries import ConfigEntry
    from rocketstore.broker_file.lint import ConfigRemark
    from rocketstore.cleaning.plan import CleanedFile, CleanReason, CleanReport
    from rocketstore.config import convert_config, lint_config
    from rocketstore.consumer.consumer import Consumer
    from rocketstore.consumer.report import GroupReport
    from rocketstore.consumer.retried import RetriedMessage
    from rocketstore.delay.report import DelayedMessage, DelayLevel, DelayReport
    from rocketstore.diagnosis.examination import doctor
    from rocketstore.diagnosis.verdict import BrokerForecast, Verdict
    from rocketstore.directory.place import file_system_of
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter
    from rocketstore.log.damage import CutRange, DamagedRange
    from rocketstore.mending.recover import RecoverReport, recover
    from rocketstore.mending.reindex import ReindexReport, reindex
    from rocketstore.mending.salvage import SalvagedSegment, SalvageReport, salvage
    from rocketstore.mending.salvage_plan import LostOfTopic, Placeholder
    from rocketstore.moving.clone import CloneReport, clone
    from rocketstore.moving.comparing.difference import Difference, DiffReport
    from rocketstore.moving.diff import diff
    from rocketstore.moving.exports.exporting import ExportReport, export
    from rocketstore.moving.exports.importing import ImportReport, import_
    from rocketstore.moving.merge import MergeReport, merge
    from rocketstore.moving.replay import ReplayReport, replay
    from rocketstore.moving.split import SplitReport, split
    from rocketstore.planning.planning import plan
    from rocketstore.planning.repair_plan import RepairPlan
    from rocketstore.planning.repair_report import RepairReport
    from rocketstore.planning.repairing import repair
    from rocketstore.planning.undoing import undo_repair
    from rocketstore.query.arrow_scan import ArrowScan
    from rocketstore.recovery.report import RecoveryReport
    from rocketstore.reporting.report import StoreReport, report
    from rocketstore.statistics.store_stats import StoreStats
    from rocketstore.survey.facts import StoreFacts
    from rocketstore.survey.pointers import PointersPastEnd
    from rocketstore.timer.findings import TimerFinding
    from rocketstore.timer.pending import TimerMessage
    from rocketstore.timer.report import TimerReport
    from rocketstore.transaction.checking import CheckReport
    from rocketstore.transaction.handle import Transaction
    from rocketstore.verify.report import Finding, VerifyReport


__all__ = [
    "AppendMessageStatus",
    "ArrowScan",
    "BrokerForecast",
    "CheckReport",
    "CleanReason",
    "CleanReport",
    "CleanedFile",
    "CloneReport",
    "ConfigEntry",
    "ConfigError",
    "ConfigRemark",
    "Consumer",
    "ConsumerConflictError",
    "ConsumerError",
    "ConvertedConfig",
    "CorruptConsumeQueueError",
    "CorruptIndexError",
    "CorruptMessageError",
    "CorruptionError",
    "CutRange",
    "DamagedRange",
    "DecodeError",
    "DefaultMessageStore",
    "DelayLevel",
    "DelayReport",
    "DelayedMessage",
    "DiffReport",
    "Difference",
    "ExportReport",
    "FilterError",
    "FilterEvaluationError",
    "FilterSyntaxError",
    "FilterWarning",
    "Finding",
    "FlushDiskType",
    "ForkedStoreError",
    "GetMessageResult",
    "GetMessageStatus",
    "GroupReport",
    "ImportReport",
    "LostOfTopic",
    "MappedFileError",
    "MergeReport",
    "Message",
    "MessageBatch",
    "MessageFilter",
    "MessageStoreConfig",
    "OffsetOutOfRangeError",
    "Placeholder",
    "PointersPastEnd",
    "PutManyResult",
    "PutMessageResult",
    "PutMessageStatus",
    "QueryMessageResult",
    "RecoverReport",
    "RecoveryReport",
    "ReentrantCallError",
    "ReindexReport",
    "RepairPlan",
    "RepairRefusedError",
    "RepairReport",
    "ReplayReport",
    "RetriedMessage",
    "RocketStoreError",
    "SalvageReport",
    "SalvagedSegment",
    "ServiceFailedError",
    "SourceChangedError",
    "SplitReport",
    "Sql92Filter",
    "StoreClosedError",
    "StoreFacts",
    "StoreFullError",
    "StoreLockedError",
    "StoreReport",
    "StoreStats",
    "StoredMessage",
    "TagFilter",
    "TimerFinding",
    "TimerMessage",
    "TimerReport",
    "Transaction",
    "TransactionError",
    "TransactionNotFoundError",
    "TransactionState",
    "TransactionStateError",
    "UnsafePathError",
    "Verdict",
    "VerifyReport",
    "clone",
    "convert_config",
    "diff",
    "doctor",
    "export",
    "file_system_of",
    "import_",
    "lint_config",
    "merge",
    "open",
    "plan",
    "recover",
    "reindex",
    "repair",
    "replay",
    "report",
    "salvage",
    "split",
    "undo_repair",
]


#: Names that are imported on first use, and their modules.
_LATER = {
    "ConfigEntry": "broker_file.entries",
    "ConfigRemark": "broker_file.lint",
    "ConvertedConfig": "broker_file.conversion",
    "convert_config": "config",
    "lint_config": "config",
    "CleanReason": "cleaning.plan",
    "CleanReport": "cleaning.plan",
    "CleanedFile": "cleaning.plan",
    "Consumer": "consumer.consumer",
    "GroupReport": "consumer.report",
    "RetriedMessage": "consumer.retried",
    "DelayLevel": "delay.report",
    "DelayReport": "delay.report",
    "DelayedMessage": "delay.report",
    "file_system_of": "directory.place",
    "Sql92Filter": "filter.sql92.sql92_filter",
    "Verdict": "diagnosis.verdict",
    "BrokerForecast": "diagnosis.verdict",
    "doctor": "diagnosis.examination",
    "CutRange": "log.damage",
    "DamagedRange": "log.damage",
    "CloneReport": "moving.clone",
    "clone": "moving.clone",
    "ExportReport": "moving.exports.exporting",
    "export": "moving.exports.exporting",
    "ImportReport": "moving.exports.importing",
    "import_": "moving.exports.importing",
    "DiffReport": "moving.comparing.difference",
    "Difference": "moving.comparing.difference",
    "diff": "moving.diff",
    "MergeReport": "moving.merge",
    "merge": "moving.merge",
    "ReplayReport": "moving.replay",
    "replay": "moving.replay",
    "SplitReport": "moving.split",
    "split": "moving.split",
    "ArrowScan": "query.arrow_scan",
    "RecoveryReport": "recovery.report",
    "plan": "planning.planning",
    "RepairPlan": "planning.repair_plan",
    "RepairReport": "planning.repair_report",
    "repair": "planning.repairing",
    "RecoverReport": "mending.recover",
    "recover": "mending.recover",
    "ReindexReport": "mending.reindex",
    "reindex": "mending.reindex",
    "undo_repair": "planning.undoing",
    "SalvageReport": "mending.salvage",
    "SalvagedSegment": "mending.salvage",
    "salvage": "mending.salvage",
    "LostOfTopic": "mending.salvage_plan",
    "Placeholder": "mending.salvage_plan",
    "StoreReport": "reporting.report",
    "report": "reporting.report",
    "StoreStats": "statistics.store_stats",
    "StoreFacts": "survey.facts",
    "PointersPastEnd": "survey.pointers",
    "CheckReport": "transaction.checking",
    "Transaction": "transaction.handle",
    "TimerFinding": "timer.findings",
    "TimerMessage": "timer.pending",
    "TimerReport": "timer.report",
    "Finding": "verify.report",
    "VerifyReport": "verify.report",
}


def __getattr__(name: str) -> Any:
    """Import rarely used names on first use, so that importing the package stays fast."""
    import importlib

    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    return getattr(importlib.import_module(f"rocketstore.{module}"), name)


def __dir__() -> list[str]:
    """The public names, and no module that they are made of."""
    return sorted([*__all__, "__version__"])
