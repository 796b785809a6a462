"""Names that RocketMQ 4.9.0 to 5.5.0 reads from a broker's file, and what they mean here.

A broker hands its file to several classes, each of which takes the names of its setters. The
tables below list them: every name has the versions from which and up to which RocketMQ knows it,
unless these are the first and the last.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

_STORE = """
accessMessageInMemoryHotRatio@5.1.2 accessMessageInMemoryMaxRatio allAckInSyncStateSet@5.0.0
appendTopicForTimerDeleteKey@5.4.0 asyncLearner@5.0.0 autoMessageVersionOnTopicLen@5.1.0
batchDispatchRequestThreadPoolNums@5.1.0 batchWriteKvCqSize@5.3.1-5.3.1 bitMapLengthConsumeQueueExt
bottomMostCompressionTypeForConsumeQueueStore@5.3.2 brokerRole checkCRCOnRecover
checkCommitLogOffsetOnRecover@5.5.0 cleanFileForciblyEnable cleanResourceInterval
cleanRocksDBDirtyCQIntervalMin@5.2.0 cleanSwapedMapInterval@5.0.0 coldDataFlowControlEnable@5.1.2
coldDataScanEnable@5.1.2 combineAssignOffsetCQType@5.4.0 combineCQEnableCheckSelf@5.4.0
combineCQLoadingCQTypes@5.4.0 combineCQMaxExtraSearchCommitLogFiles@5.4.0
combineCQPreferCQType@5.4.0 combineCQUseRocksdbForLmq@5.5.0 commitCommitLogLeastPages
commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval@5.0.0
commitLogRecoverMaxNum@5.4.0 commitLogSwapMapInterval@5.0.0 commitLogSwapMapReserveFileNum@5.0.0
compactionCqMappedFileSize@5.1.0 compactionMappedFileSize@5.1.0 compactionScheduleInternal@5.1.0
compactionThreadNum@5.1.0 correctLogicMinOffsetForceInterval@5.0.0
correctLogicMinOffsetSleepInterval@5.0.0 dLegerGroup dLegerPeers dLegerSelfId
dataReadAheadEnable@5.1.2 debugLockEnable defaultQueryMaxNum deleteCommitLogFilesInterval
deleteConsumeQueueFilesInterval deleteFileBatchMax@5.0.0 deleteWhen
destroyMapedFileIntervalForcibly disappearTimeAfterStart@5.0.0 diskFallRecorded
diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio@5.0.0 diskSpaceWarningLevelRatio@5.0.0
dispatchCqCacheNum@5.0.0 dispatchCqThreads@5.0.0 dispatchFromSenderThread@5.0.0 duplicationEnable
enableAcceleratedRecovery@5.4.0 enableAsyncReput@5.0.0 enableAutoInSyncReplicas@5.0.0
enableBatchPush enableBuildConsumeQueueConcurrently@5.1.0 enableCleanExpiredOffset@5.0.0
enableCompaction@5.1.0 enableConsumeQueueExt enableDLegerCommitLog enableLmq@4.9.3
enableLmqQuota@5.5.0 enableLogConsumeQueueRepeatedlyBuildWhenRecover@5.4.0
enableMultiDispatch@4.9.3 enableRocksDBLog@5.1.4 enableRunningFlagsInFlush@5.4.0
enableScheduleAsyncDeliver@4.9.3 enableScheduleMessageStats enabledAppendPropCRC@5.2.0
fastFailIfNoBufferInStorePool fileReservedTime flushCommitLogLeastPages
flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
flushConsumeQueueThoroughInterval flushDelayOffsetInterval flushDiskType flushIntervalCommitLog
flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC@5.2.0
haFlowControlEnable@5.0.0 haHousekeepingInterval haListenPort haMasterAddress
haMaxGapNotInSync@5.0.0 haMaxTimeSlaveNotCatchup@5.0.0 haSendHeartbeatInterval
haSlaveFallbehindMax@-4.9.8 haTransferBatchSize inSyncReplicas@5.0.0 indexFileReadEnable@5.4.0
indexFileWriteEnable@5.4.0 indexRocksDBEnable@5.4.0 iteratorWhenUseRocksdbConsumeQueue@5.5.0
logicQueueForceSwapMapInterval@5.0.0 logicQueueSwapMapInterval@5.0.0
logicQueueSwapMapReserveFileNum@5.0.0 logicalDiskSpaceCleanForciblyThreshold@5.0.0
mappedFileSizeCommitLog mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt
mappedFileSizeTimerLog@5.0.0 mappedFileSwapEnable@5.0.0 mapperFileSizeBatchConsumeQueue@5.0.0
maxAsyncPutMessageRequests@5.0.0 maxBatchDeleteFilesNum@5.0.0 maxChecksumRange@5.0.0
maxConsumeQueueScan@5.1.0 maxFilterMessageSize@5.2.0 maxHaTransferByteInSecond@5.0.0 maxHashSlotNum
maxIndexNum maxLmqConsumeQueueNum@4.9.3 maxMessageSize maxMsgsNumBatch maxOffsetMapSize@5.1.0
maxRecoveryCommitlogFiles@5.0.0 maxRocksDBIndexQueryDays@5.4.0 maxSlaveResendLength@5.0.0
maxTopicLength@5.0.0 maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushInterval@5.1.4-5.1.4
memTableFlushIntervalMs@5.2.0 messageDelayLevel messageIndexEnable messageIndexSafe
minInSyncReplicas@5.0.0 offsetCheckInSlave osPageCacheBusyTimeOutMills preferredLeaderId
pullBatchMaxMessageCount@5.0.0 putConsumeQueueDataByFileChannel@5.3.1 putMessageTimeout@5.0.0
putMsgIndexHightWater readOnlyCommitLogStorePaths@4.9.2 readUnCommitted@5.3.0
realTimePersistRocksDBConfig@5.1.4 recheckReputOffsetFromCq@5.0.0 redeleteHangedFileInterval
replicasPerDiskPartition@5.0.0 rocksdbCQDoubleWriteEnable@5.3.1 rocksdbCompressionType@5.3.2
rocksdbFlushWalFrequency@5.3.2 rocksdbWalFileRollingThreshold@5.3.2 sampleCountThreshold@5.1.0
sampleSteps@5.1.2 scheduleAsyncDeliverMaxPendingLimit@4.9.3
scheduleAsyncDeliverMaxResendNum2Blocked@4.9.3 searchBcqByCacheEnable@5.0.0
sharedByteBufferNum@5.4.0 slaveTimeout@4.9.3 spinLockCollisionRetreatOptimalDegree@5.3.2
statRocksDBCQIntervalSec@5.2.0 storePathBrokerIdentity@5.1.1 storePathCommitLog
storePathDLedgerCommitLog@4.9.4 storePathEpochFile@5.0.0 storePathRootDir storeType@5.1.4
syncFlushTimeout syncFromLastFile@5.0.0 syncMasterFlushOffsetWhenStartup@5.0.0
timerColdDataCheckIntervalMs@5.1.2 timerCongestNumEachSlot@5.0.0 timerEnableCheckMetrics@5.0.0
timerEnableRetryUntilSuccess@5.3.2 timerFlushIntervalMs@5.0.0 timerGetMessageThreadNum@5.0.0
timerInterceptDelayLevel@5.0.0 timerMaxDelaySec@5.0.0 timerMetricSmallThreshold@5.0.0
timerPrecisionMs@5.0.0 timerProgressLogIntervalMs@5.0.0 timerPutMessageThreadNum@5.0.0
timerRecallToTimeWheelEnable@5.4.0 timerRecallToTimelineEnable@5.4.0
timerReputServiceCorePoolSize@5.5.0 timerReputServiceMaxPoolSize@5.5.0
timerReputServiceQueueCapacity@5.5.0 timerRocksDBEnable@5.4.0 timerRocksDBPrecisionMs@5.4.0
timerRocksDBRollIntervalHours@5.4.0 timerRocksDBRollMaxTps@5.4.0 timerRocksDBRollRangeHours@5.4.0
timerRocksDBStopScan@5.4.0 timerRocksDBTimeExpiredMaxTps@5.4.0 timerRollWindowSlot@5.0.0
timerSkipUnknownError@5.2.0 timerStopEnqueue@5.0.0 timerWheelEnable@5.0.0
timerWheelSnapshotFlush@5.4.0 timerWheelSnapshotIntervalMs@5.4.0 topicQueueLockNum@5.1.4
totalReplicas@5.0.0 transRocksDBEnable@5.4.0 transWriteOriginTransHalfEnable@5.4.0
transferMetadataJsonToRocksdb@5.3.1-5.3.1 transferOffsetJsonToRocksdb@5.3.1-5.3.1
transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage@5.0.0
useABSLock@5.3.2 useReentrantLockWhenPutMessage useSeparateStorePathForRocksdbCQ@5.5.0
wakeCommitWhenPutMessage@5.0.0 wakeFlushWhenPutMessage@5.0.0 warmMapedFileEnable
writeWithoutMmap@5.4.0
"""
_BROKER = """
accountStatsEnable@5.0.0 accountStatsPrintZeroValues@5.0.0 ackMessageThreadPoolNums@5.0.0
ackThreadPoolQueueCapacity@5.0.0 aclEnable adminBrokerThreadPoolNums
adminBrokerThreadPoolQueueCapacity@5.0.0 allowRecallWhenBrokerNotWriteable@5.3.2
appendAckAsync@5.3.2 appendCkAsync@5.3.2 asyncSendEnable@5.0.0 autoCreateSubscriptionGroup
autoCreateTopicEnable autoDeleteUnusedStats broadcastOffsetExpireMaxSecond@5.1.0
broadcastOffsetExpireSecond@5.1.0 brokerClusterName brokerConfigPath@5.0.0
brokerElectionPriority@5.1.0 brokerFastFailureEnable brokerHeartbeatInterval@5.0.0 brokerIP1
brokerIP2 brokerId brokerName brokerNotActiveTimeoutMillis@5.0.0 brokerPermission brokerTopicEnable
cgColdReadThreshold@5.1.2 channelExpiredTimeout@5.1.0 checkSyncStateSetPeriod@5.0.0
cleanOfflineBrokerInterval@5.0.0 clearRetryTopicWhenDeleteTopic@5.3.2 clientManageThreadPoolNums
clientManagerThreadPoolQueueCapacity clusterTopicEnable coldCtrStrategyEnable@5.1.2
commercialBaseCount commercialBigCount@-4.9.8 commercialEnable@-4.9.8 commercialSizePerMsg@5.0.0
commercialTimerCount@-4.9.8 commercialTransCount@-4.9.8 compatibleWithOldNameSrv@5.0.0
compressedRegister configBlackList@4.9.8 configManagerVersion@5.3.2 consumerFallbehindThreshold
consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
consumerOffsetUpdateVersionStep@5.0.0 controllerAddr@5.0.0 controllerHeartBeatTimeoutMills@5.1.0
defaultMessageRequestMode@5.0.0 defaultPopShareQueueNum@5.0.0 defaultTopicQueueNums
delayOffsetUpdateVersionStep@5.0.0 disableConsumeIfConsumerReadSlowly
enableBroadcastOffsetStore@5.1.0 enableCalcFilterBitMap enableConnectionMetrics@5.4.0
enableControllerMode@5.0.0 enableCreateSysGroup@5.3.3 enableDetailStat@4.9.3
enableFastChannelEventProcess@5.3.3 enableLagAndDlqMetrics@5.4.0 enableLiteEventMode@5.5.0
enableLitePopLog@5.5.0 enableLmqStats@5.3.2 enableMessageStoreMetrics@5.4.0
enableMixedMessageType@5.1.4 enableNetWorkFlowControl@5.0.0
enableNotifyAfterPopOrderLockRelease@5.1.0 enableNotifyBeforePopCalculateLag@5.3.2
enablePopBatchAck@5.1.2 enablePopBufferMerge@5.0.0 enablePopLog@5.0.0
enablePopMessageThreshold@5.2.0 enablePopMetrics@5.4.0 enablePropertyFilter
enableRegisterProducer@5.3.3 enableRemoteEscape@5.0.0 enableRemotingMetrics@5.4.0
enableRequestMetrics@5.4.0 enableRetryTopicV2@5.2.0 enableSingleTopicRegister@5.1.4
enableSkipLongAwaitingAck@5.1.0 enableSlaveActingMaster@5.0.0 enableSplitMetadata@5.4.0
enableSplitRegistration@5.1.4 enableStatsMetrics@5.4.0 enableTransactionMetrics@5.4.0
endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation@5.1.0
expectConsumerNumUseFilter fetchControllerAddrByDnsLookup@5.1.0 fetchNameSrvAddrByDnsLookup@5.1.0
fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval@5.1.3 filterDataCleanTimeSpan
filterServerNums@-5.1.0 filterSupportRetry flushConsumerOffsetHistoryInterval
flushConsumerOffsetInterval forceRegister forwardTimeout@5.0.0 globalColdReadThreshold@5.1.2
heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode inBrokerContainer@5.0.0
initPopOffsetByCheckMsgInMem@5.1.4 isolateLogEnable@4.9.3 listenPort liteEventCheckInterval@5.5.0
liteEventFullDispatchDelayTime@5.5.0 liteEventFullDispatchDelayTimeForWildcardGroup@5.5.0
liteLagCountMetricsEnable@5.5.0 liteLagLatencyCollectEnable@5.5.0 liteLagLatencyMetricsEnable@5.5.0
liteLagLatencyTopK@5.5.0 litePullMessageEnable@5.0.0 litePullMessageThreadPoolNums@5.0.0
litePullThreadPoolQueueCapacity@5.0.0 liteSubscriptionCheckInterval@5.5.0
liteSubscriptionCheckTimeoutMills@5.5.0 liteTtlCheckInterval@5.5.0
loadBalancePollNameServerInterval@5.0.0 loadBalanceProcessorThreadPoolNums@5.0.0
loadBalanceThreadPoolQueueCapacity@5.0.0 lockInStrictMode@5.0.0 longPollingEnable
maxClientEventCount@5.5.0 maxDelayTime@-5.1.0 maxErrorRateOfBloomFilter
maxLiteSubscriptionCount@5.5.0 maxMessageFilterNumForNotification@5.5.0 maxPopPollingSize@5.0.0
maxStatsIdleTimeInMinutes@5.3.3 messageStorePlugIn metricGrpcExporterIntervalInMills@5.1.0
metricGrpcExporterTimeOutInMills@5.1.0 metricLoggingExporterIntervalInMills@5.1.1
metricsExportBatchMaxDataPoints@5.5.0 metricsExporterType@5.1.0 metricsGrpcExporterHeader@5.1.0
metricsGrpcExporterTarget@5.1.0 metricsInDelta@5.1.0 metricsLabel@5.1.0
metricsOtelCardinalityLimit@5.1.4 metricsPromExporterHost@5.1.0 metricsPromExporterPort@5.1.0
minLiteTTl@5.5.0 msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable
persistConsumerOffsetIncrementally@5.5.0 popCkMaxBufferSize@5.0.0 popCkOffsetMaxQueueSize@5.0.0
popCkStayBufferTime@5.0.0 popCkStayBufferTimeOut@5.0.0 popConsumerFSServiceInit@5.3.2
popConsumerKVServiceEnable@5.3.2 popConsumerKVServiceInit@5.3.2 popConsumerKVServiceLog@5.3.2
popFromRetryProbability@5.3.1 popFromRetryProbabilityForPriority@5.4.0
popInflightMessageThreshold@5.2.0 popLongPollingForceNotifyInterval@5.3.2
popPollingMapExpireTimeSeconds@5.4.0 popPollingMapSize@5.0.0 popPollingSize@5.0.0
popResponseReturnActualRetryTopic@5.1.4 popReviveConcurrency@5.4.0 popReviveMaxAttemptTimes@5.3.2
popReviveMaxReturnSizePerRead@5.3.2 popReviveSkipIfGroupAbsent@5.5.0 printChannelGroups@5.3.3
printChannelGroupsMinNum@5.3.3 priorityOrderAsc@5.4.0 processReplyMessageThreadPoolNums
pullMessageThreadPoolNums pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums@4.9.3
putThreadPoolQueueCapacity@4.9.3 queryMessageThreadPoolNums queryThreadPoolQueueCapacity
realTimeNotifyConsumerChange@5.0.0 recallMessageEnable@5.3.2 recoverConcurrently@5.1.0
recoverThreadPoolNums@5.1.0 regionId registerBrokerTimeoutMills registerNameServerPeriod
rejectPullConsumerEnable@5.0.0 rejectTransactionMessage replyThreadPoolQueueCapacity
retrieveMessageFromPopRetryTopicV1@5.2.0 reviveAckWaitMs@5.1.0 reviveInterval@5.0.0
reviveMaxSlow@5.0.0 reviveQueueNum@5.0.0 reviveScanTime@5.0.0 rmqAddressServerDomain
rmqAddressServerSubGroup rocketmqHome sendHeartbeatTimeoutMillis@5.0.0 sendMessageThreadPoolNums
sendThreadPoolQueueCapacity serverLoadBalancerEnable@5.0.0 shortPollingTimeMills
skipPreOnline@5.0.0 skipWhenCKRePutReachMaxTimes@5.3.1 slaveReadEnable splitMetadataSize@5.4.0
splitRegistrationSize@5.1.4 startAcceptSendRequestTimeStamp storeReplyMessageEnable
subscriptionExpiredTimeout@5.1.0 syncBrokerMemberGroupPeriod@5.0.0 syncBrokerMetadataPeriod@5.0.0
syncControllerMetadataPeriod@5.0.0 traceOn traceTopicEnable transactionCheckInterval
transactionCheckMax transactionCheckRocksdbCoreThreads@5.5.0
transactionCheckRocksdbMaxThreads@5.5.0 transactionCheckRocksdbQueueCapacity@5.5.0
transactionMetricFlushInterval@5.2.0 transactionOpBatchInterval@5.1.0 transactionOpMsgMaxSize@5.1.0
transactionTimeOut transferMsgByHeap updateNameServerAddrPeriod@5.3.1
useMessageFilterForNotification@5.5.0 usePIDColdCtrStrategy@5.1.2 useSeparateRetryQueue@5.4.0
useServerSideResetOffset@5.1.0 useSingleRocksDBForAllConfigs@5.4.0 useStaticSubscription@5.1.1
validateSystemTopicWhenUpdateTopic@5.1.0 waitTimeMillsInAckQueue@5.0.0
waitTimeMillsInAdminBrokerQueue@5.3.0 waitTimeMillsInHeartbeatQueue
waitTimeMillsInLitePullQueue@5.0.0 waitTimeMillsInPullQueue waitTimeMillsInSendQueue
waitTimeMillsInTransactionQueue
"""
_SERVER = """
bindAddress@5.0.0 enableShutdownGracefully@5.2.0 serverAsyncSemaphoreValue
serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable@5.3.1
serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
serverSocketBacklog@4.9.3 serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
shutdownWaitTimeSeconds@5.2.0 useEpollNativeSelector writeBufferHighWaterMark@4.9.3
writeBufferLowWaterMark@4.9.3
"""
_CLIENT = """
channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
clientWorkerThreads connectTimeoutMillis disableCallbackExecutor@5.0.0
disableNettyWorkerGroup@5.0.0 enableReconnectForGoAway@5.2.0 enableTransparentRetry@5.2.0-5.3.1
maxReconnectIntervalTimeSeconds@5.2.0 scanAvailableNameSrv@5.3.0 socksProxyConfig@5.1.0 useTLS
"""
_AUTH = """
aclCacheExpiredSecond@5.3.0 aclCacheMaxNum@5.3.0 aclCacheRefreshSecond@5.3.0 authConfigPath@5.3.0
authenticationEnabled@5.3.0 authenticationMetadataProvider@5.3.0 authenticationProvider@5.3.0
authenticationStrategy@5.3.0 authenticationWhitelist@5.3.0 authorizationEnabled@5.3.0
authorizationMetadataProvider@5.3.0 authorizationProvider@5.3.0 authorizationStrategy@5.3.0
authorizationWhitelist@5.3.0 clusterName@5.3.0 configName@5.3.0 initAuthenticationUser@5.3.0
innerClientAuthenticationCredentials@5.3.0 migrateAuthFromV1Enabled@5.3.0
statefulAuthenticationCacheExpiredSecond@5.3.0 statefulAuthenticationCacheMaxNum@5.3.0
statefulAuthorizationCacheExpiredSecond@5.3.0 statefulAuthorizationCacheMaxNum@5.3.0
userCacheExpiredSecond@5.3.0 userCacheMaxNum@5.3.0 userCacheRefreshSecond@5.3.0
"""
_TIERED = """
commitLogRollingInterval@5.1.0 commitLogRollingMinimumSize@5.1.0 maxCommitJitter@5.1.0-5.3.0
objectStoreAccessKey@5.1.2 objectStoreBucket@5.1.2 objectStoreEndpoint@5.1.2
objectStoreSecretKey@5.1.2 ossAccessKey@5.1.0-5.1.1 ossBucket@5.1.0-5.1.1 ossEndpoint@5.1.0-5.1.1
ossSecretKey@5.1.0-5.1.1 readAheadBatchSizeFactorThreshold@5.1.0-5.2.0 readAheadCacheEnable@5.3.0
readAheadCacheExpireDuration@5.1.0 readAheadCacheSizeThresholdRate@5.1.0
readAheadMaxFactor@5.1.0-5.2.0 readAheadMessageCountThreshold@5.1.0
readAheadMessageSizeThreshold@5.1.0 readAheadMinFactor@5.1.0-5.2.0 recordGetMessageResult@5.2.0
tieredBackendServiceProvider@5.1.0 tieredMetadataServiceProvider@5.1.0 tieredStorageLevel@5.1.0
tieredStoreCommitLogMaxSize@5.1.0 tieredStoreConsumeQueueMaxSize@5.1.0
tieredStoreCrcCheckEnable@5.3.0 tieredStoreDeleteFileEnable@5.3.1
tieredStoreDeleteFileInterval@5.3.1 tieredStoreFilePath@5.1.2 tieredStoreFileReservedTime@5.1.0
tieredStoreFilepath@5.1.0-5.1.1 tieredStoreGroupCommit@5.3.0 tieredStoreGroupCommitCount@5.1.0
tieredStoreGroupCommitSize@5.1.0 tieredStoreGroupCommitTimeout@5.3.0
tieredStoreIndexFileMaxHashSlotNum@5.1.0 tieredStoreIndexFileMaxIndexNum@5.1.0
tieredStoreIndexFileRollingIdleInterval@5.1.0-5.3.0 tieredStoreMaxFallBehindSize@5.3.0-5.3.0
tieredStoreMaxGroupCommitCount@5.1.0 tieredStoreMaxPendingLimit@5.3.0
"""

#: Why a name of the store, or a broker's name that touches the store, has no effect here.
_REASONS = {
    "the kind of queues is detected from the files": "storeType",
    "files of RocksDB are neither read nor written; queues are derived from the log": """
        realTimePersistRocksDBConfig enableRocksDBLog cleanRocksDBDirtyCQIntervalMin
        statRocksDBCQIntervalSec memTableFlushInterval memTableFlushIntervalMs
        rocksdbCQDoubleWriteEnable bottomMostCompressionTypeForConsumeQueueStore
        rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
        combineCQLoadingCQTypes combineCQPreferCQType combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQMaxExtraSearchCommitLogFiles combineCQUseRocksdbForLmq
        transferMetadataJsonToRocksdb transferOffsetJsonToRocksdb batchWriteKvCqSize
        enableAcceleratedRecovery iteratorWhenUseRocksdbConsumeQueue
        useSeparateStorePathForRocksdbCQ transRocksDBEnable transWriteOriginTransHalfEnable
        indexRocksDBEnable maxRocksDBIndexQueryDays indexFileWriteEnable indexFileReadEnable""",
    "a DLedger log is refused; without enableDLegerCommitLog=true RocketMQ ignores it, too": """
        storePathDLedgerCommitLog enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId
        preferredLeaderId enableBatchPush""",
    "of a broker under a controller": "storePathEpochFile storePathBrokerIdentity",
    "rocketstore has its own locks": """
        useReentrantLockWhenPutMessage useABSLock spinLockCollisionRetreatOptimalDegree
        topicQueueLockNum debugLockEnable""",
    "rocketstore has its own way to read, write and sync files": """
        writeWithoutMmap putConsumeQueueDataByFileChannel dataReadAheadEnable flushCommitLogTimed
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage destroyMapedFileIntervalForcibly
        sharedByteBufferNum""",
    "puts never return OS_PAGE_CACHE_BUSY": "osPageCacheBusyTimeOutMills",
    "a failed sync always stops puts": "enableRunningFlagsInFlush",
    "a long topic gets record version 2 where broker_version has it": """
        autoMessageVersionOnTopicLen maxTopicLength""",
    "RocketMQ does not use it either": """
        putMessageTimeout putMsgIndexHightWater maxAsyncPutMessageRequests
        maxRecoveryCommitlogFiles maxBatchDeleteFilesNum dispatchCqThreads dispatchCqCacheNum
        enableAsyncReput mappedFileSwapEnable commitLogForceSwapMapInterval
        commitLogSwapMapInterval commitLogSwapMapReserveFileNum logicQueueForceSwapMapInterval
        logicQueueSwapMapInterval cleanSwapedMapInterval logicQueueSwapMapReserveFileNum
        dispatchFromSenderThread enableCleanExpiredOffset pullBatchMaxMessageCount""",
    "RocketMQ has the option, but takes it from no file": """
        timerEnableDisruptor timerStopDequeue timerWarmEnable timerCheckMetricsWhen""",
    "dispatch reads what readers may see, in the order of the log": """
        readUnCommitted recheckReputOffsetFromCq enableBuildConsumeQueueConcurrently
        batchDispatchRequestThreadPoolNums""",
    "recovery derives missing index entries in any case": "messageIndexSafe",
    "recovery always compares CRCs": "checkCRCOnRecover",
    "recovery reads as much of the log as it needs": """
        commitLogRecoverMaxNum checkCommitLogOffsetOnRecover recoverConcurrently
        recoverThreadPoolNums enableLogConsumeQueueRepeatedlyBuildWhenRecover""",
    "a call says how many messages it wants": "defaultQueryMaxNum",
    "rocketstore behaves as with RocketMQ's default": """
        travelCqFileNumWhenGetMessage offsetCheckInSlave correctLogicMinOffsetSleepInterval
        correctLogicMinOffsetForceInterval searchBcqByCacheEnable""",
    "rocketstore does not estimate counts of messages": "maxConsumeQueueScan sampleCountThreshold",
    "rocketstore does not account for cold reads": """
        coldDataFlowControlEnable coldDataScanEnable timerColdDataCheckIntervalMs sampleSteps
        accessMessageInMemoryHotRatio""",
    "of a broker's statistics": "diskFallRecorded enableScheduleMessageStats autoDeleteUnusedStats",
    "delivery of delayed messages has its own pace": """
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked""",
    "timer messages are stored, for a broker to deliver": """
        timerRollWindowSlot mappedFileSizeTimerLog timerFlushIntervalMs timerGetMessageThreadNum
        timerPutMessageThreadNum timerEnableCheckMetrics timerInterceptDelayLevel
        disappearTimeAfterStart timerStopEnqueue timerSkipUnknownError timerMetricSmallThreshold
        timerProgressLogIntervalMs timerEnableRetryUntilSuccess timerWheelSnapshotFlush
        timerWheelSnapshotIntervalMs timerRocksDBEnable timerRocksDBRollMaxTps
        timerRocksDBTimeExpiredMaxTps timerRocksDBStopScan timerRocksDBPrecisionMs
        timerRecallToTimeWheelEnable timerRecallToTimelineEnable timerRocksDBRollIntervalHours
        timerRocksDBRollRangeHours appendTopicForTimerDeleteKey timerReputServiceCorePoolSize
        timerReputServiceMaxPoolSize timerReputServiceQueueCapacity""",
    "a call says how long it waits": "longPollingEnable shortPollingTimeMills",
    "SQL92 filters are always accepted": "enablePropertyFilter filterSupportRetry",
    "filters in config/consumerFilter.json are kept": "filterDataCleanTimeSpan",
    "of a broker: it creates topics": "defaultTopicQueueNums",
    "of a broker: it resets offsets": "useServerSideResetOffset",
    "rocketstore does not replicate": """
        duplicationEnable haListenPort haSendHeartbeatInterval haHousekeepingInterval
        haTransferBatchSize haMasterAddress slaveTimeout haSlaveFallbehindMax haMaxGapNotInSync
        totalReplicas inSyncReplicas minInSyncReplicas allAckInSyncStateSet
        enableAutoInSyncReplicas haFlowControlEnable maxHaTransferByteInSecond
        haMaxTimeSlaveNotCatchup syncMasterFlushOffsetWhenStartup maxSlaveResendLength
        syncFromLastFile asyncLearner maxChecksumRange""",
    "topics with compaction are kept whole": """
        enableCompaction compactionMappedFileSize compactionCqMappedFileSize
        compactionScheduleInternal maxOffsetMapSize compactionThreadNum""",
}
_GROUPS = (
    (_STORE, "of a broker's store"),
    (_BROKER, "of a broker, not of its store"),
    (_SERVER, "of a broker's network server"),
    (_CLIENT, "of a broker's network client"),
    (_AUTH, "of a broker's access control"),
    (_TIERED, "of tiered storage"),
)


class KnownKey(NamedTuple):
    """A name that RocketMQ knows: from which version, up to which, and why rocketstore ignores it.

    ``None`` stands for the first or last version, 4.9.0 and 5.5.0.
    """

    name: str
    since: str | None
    until: str | None
    reason: str


@functools.cache
def known_keys() -> dict[str, KnownKey]:
    """Return all names."""
    reasons = {name: reason for reason, names in _REASONS.items() for name in names.split()}
    found = {name: KnownKey(name, None, None, reason) for name, reason in reasons.items()}
    for table, group in _GROUPS:
        for word in table.split():
            name, _, versions = word.partition("@")
            since, _, until = versions.partition("-")
            reason = reasons.get(name, group)
            found[name] = KnownKey(name, since or None, until or None, reason)
    return found


def knows(name: str, version: str) -> bool:
    """Return whether a RocketMQ version (``"5.3.3"``) reads a key."""
    known = known_keys().get(name)
    if known is None:
        return False
    at = _numbers(version)
    return _numbers(known.since or "0") <= at <= _numbers(known.until or "99")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
