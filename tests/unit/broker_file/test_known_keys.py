"""The names that RocketMQ reads from a broker's file: each is used, or ignored for a reason."""

from __future__ import annotations

import dataclasses
import re

import pytest

from rocketstore import MessageStoreConfig
from rocketstore.broker_file.entries import field_of
from rocketstore.broker_file.known_keys import known_keys

#: Options that decide what a store of RocketMQ 4.9 to 5.5 does, or that brokers' files often have.
_NAMES = """
accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio allAckInSyncStateSet asyncLearner
autoDeleteUnusedStats autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
batchWriteKvCqSize bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore
brokerRole checkCRCOnRecover cleanFileForciblyEnable cleanResourceInterval
cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval coldDataFlowControlEnable
coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType commitCommitLogLeastPages
commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
compactionMappedFileSize compactionScheduleInternal compactionThreadNum
correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dLegerGroup dLegerPeers
dLegerSelfId dataReadAheadEnable debugLockEnable defaultQueryMaxNum defaultTopicQueueNums
deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval deleteFileBatchMax deleteWhen
destroyMapedFileIntervalForcibly disappearTimeAfterStart diskFallRecorded diskMaxUsedSpaceRatio
diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads
dispatchFromSenderThread duplicationEnable enableAcceleratedRecovery enableAsyncReput
enableAutoInSyncReplicas enableBatchPush enableBuildConsumeQueueConcurrently
enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction enableConsumeQueueExt
enableDLegerCommitLog enableLmq enableLogConsumeQueueRepeatedlyBuildWhenRecover
enableMultiDispatch enablePropertyFilter enableRocksDBLog enableRunningFlagsInFlush
enableScheduleAsyncDeliver enableScheduleMessageStats enabledAppendPropCRC
expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fileReservedTime
filterDataCleanTimeSpan filterSupportRetry flushCommitLogLeastPages
flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
flushConsumeQueueThoroughInterval flushConsumerOffsetInterval flushDelayOffsetInterval
flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile
forceVerifyPropCRC haFlowControlEnable haHousekeepingInterval haListenPort haMasterAddress
haMaxGapNotInSync haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haSlaveFallbehindMax
haTransferBatchSize inSyncReplicas logicQueueForceSwapMapInterval logicQueueSwapMapInterval
logicQueueSwapMapReserveFileNum logicalDiskSpaceCleanForciblyThreshold longPollingEnable
mappedFileSizeCommitLog mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt
mappedFileSizeTimerLog mappedFileSwapEnable mapperFileSizeBatchConsumeQueue
maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan
maxErrorRateOfBloomFilter maxFilterMessageSize maxHaTransferByteInSecond maxHashSlotNum
maxIndexNum maxLmqConsumeQueueNum maxMessageSize maxMsgsNumBatch maxOffsetMapSize
maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength maxTransferBytesOnMessageInDisk
maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk
maxTransferCountOnMessageInMemory memTableFlushIntervalMs messageDelayLevel messageIndexEnable
messageIndexSafe minInSyncReplicas offsetCheckInSlave osPageCacheBusyTimeOutMills
preferredLeaderId pullBatchMaxMessageCount putConsumeQueueDataByFileChannel putMessageTimeout
putMsgIndexHightWater readOnlyCommitLogStorePaths readUnCommitted realTimePersistRocksDBConfig
recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval
replicasPerDiskPartition rocksdbCQDoubleWriteEnable rocksdbCompressionType
rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
searchBcqByCacheEnable shortPollingTimeMills slaveTimeout spinLockCollisionRetreatOptimalDegree
statRocksDBCQIntervalSec storePathBrokerIdentity storePathCommitLog storePathDLedgerCommitLog
storePathEpochFile storePathRootDir storeType syncFlushTimeout syncFromLastFile
syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
timerCongestNumEachSlot timerEnableCheckMetrics timerEnableDisruptor
timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum
timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
timerProgressLogIntervalMs timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError
timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelEnable topicQueueLockNum
totalReplicas transactionCheckInterval transactionCheckMax transactionOpBatchInterval
transactionOpMsgMaxSize transactionTimeOut transferMetadataJsonToRocksdb
transferOffsetJsonToRocksdb transientStorePoolEnable transientStorePoolSize
travelCqFileNumWhenGetMessage useABSLock useReentrantLockWhenPutMessage useServerSideResetOffset
wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeWithoutMmap
"""
STORE_OPTIONS = _NAMES.split()
FIELDS = {item.name for item in dataclasses.fields(MessageStoreConfig)}


@pytest.mark.parametrize("name", STORE_OPTIONS)
def test_every_option_of_a_store_is_used_or_ignored_for_a_reason(name: str) -> None:
    if field_of(name) in FIELDS:
        return
    (entry,) = MessageStoreConfig.from_properties({name: ""}).entries
    assert entry.use == "ignored"
    # A group alone says nothing about an option of the store.
    assert entry.note.partition("; RocketMQ")[0] not in ("", "of a broker's store")


def test_no_option_of_the_store_is_ignored_without_a_reason() -> None:
    silent = [
        one.name
        for one in known_keys().values()
        if one.reason == "of a broker's store" and field_of(one.name) not in FIELDS
    ]
    assert not silent


def test_versions_are_versions() -> None:
    for one in known_keys().values():
        for version in (one.since, one.until):
            assert version is None or re.fullmatch(r"[45]\.[0-9]\.[0-9]", version), one


def test_known_names_are_many() -> None:
    """As many as the setters of six classes of RocketMQ; an incomplete table has fewer."""
    assert len(known_keys()) > 560
    for name in ("brokerName", "autoCreateTopicEnable", "serverWorkerThreads", "aclEnable",
                 "clientWorkerThreads", "authenticationEnabled", "tieredStoreFilePath",
                 "rmqAddressServerDomain"):  # fmt: skip
        assert name in known_keys(), name
    assert known_keys()["commitLogRecoverMaxNum"].since == "5.4.0"
    assert known_keys()["haSlaveFallbehindMax"].until == "4.9.8"
