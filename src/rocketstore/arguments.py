"""Types of arguments that many calls take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

from rocketstore.status import FlushDiskType

#: ``progress(what, done, total)`` while a long check runs.
Progress = Callable[[str, int, int], None]
#: What to do at a corrupt range.
OnCorruption = Literal["fail", "skip", "stop"]
#: Which records to read: all of the log, or what consumers see.
Records = Literal["log", "queues"]
#: How ``open`` opens a store.
Mode = Literal["r", "r+", "a", "x"]
#: What mode ``"r"`` derives in memory.
Derive = Literal["tail", "full", "none"]


def threads_of(jobs: int | None, most: int = 2) -> int:
    """Return how many threads to use: ``jobs``, or one for each processor, at most ``most``.

    Raises ``ValueError`` for less than one.
    """
    if jobs is None:
        return min(most, os.cpu_count() or 1)
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; it must be 1 or more")
    return jobs


class StoreOptions(TypedDict, total=False):
    """Options of ``open`` and others: the fields of ``MessageStoreConfig``."""

    store_path_root_dir: str | None
    store_path_commit_log: str | None
    read_only_commit_log_store_paths: str | None
    mapped_file_size_commit_log: int | None
    mapped_file_size_consume_queue: int | None
    enable_consume_queue_ext: bool | None
    mapped_file_size_consume_queue_ext: int | None
    bit_map_length_consume_queue_ext: int
    enable_calc_filter_bit_map: bool
    expect_consumer_num_use_filter: int
    max_error_rate_of_bloom_filter: int
    mapper_file_size_batch_consume_queue: int | None
    max_hash_slot_num: int | None
    max_index_num: int | None
    max_message_size: int
    flush_disk_type: FlushDiskType | Literal["SYNC_FLUSH", "ASYNC_FLUSH"]
    sync_flush_timeout: int
    flush_interval_commit_log: int
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval: int
    transient_store_pool_enable: bool
    transient_store_pool_size: int
    fast_fail_if_no_buffer_in_store_pool: bool
    commit_interval_commit_log: int
    commit_commit_log_least_pages: int
    commit_commit_log_thorough_interval: int
    warm_maped_file_enable: bool
    flush_least_pages_when_warm_maped_file: int
    flush_interval_consume_queue: int
    flush_consume_queue_least_pages: int
    flush_consume_queue_thorough_interval: int
    message_index_enable: bool
    message_delay_level: str
    schedule_message_enable: bool
    flush_delay_offset_interval: int
    flush_consumer_offset_interval: int
    delay_max_attempts: int
    timer_wheel_enable: bool
    timer_precision_ms: int
    timer_max_delay_sec: int
    timer_congest_num_each_slot: int
    enabled_append_prop_crc: bool
    force_verify_prop_crc: bool
    enable_lmq: bool
    enable_multi_dispatch: bool
    max_lmq_consume_queue_num: int
    enable_lmq_quota: bool
    max_transfer_bytes_on_message_in_memory: int
    max_transfer_bytes_on_message_in_disk: int
    max_transfer_count_on_message_in_memory: int
    max_transfer_count_on_message_in_disk: int
    access_message_in_memory_max_ratio: int
    max_filter_message_size: int
    max_msgs_num_batch: int
    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    clean_resource_enable: bool
    clean_resource_interval: int
    delete_when: str
    file_reserved_time: int
    delete_file_batch_max: int
    delete_commit_log_files_interval: int
    delete_consume_queue_files_interval: int
    redelete_hanged_file_interval: int
    disk_max_used_space_ratio: int
    disk_space_clean_forcibly_ratio: int
    disk_space_warning_level_ratio: int
    clean_file_forcibly_enable: bool
    replicas_per_disk_partition: int
    logical_disk_space_clean_forcibly_threshold: float
    transaction_time_out: int
    transaction_check_max: int
    transaction_check_interval: int | None
    transaction_op_msg_max_size: int
    transaction_op_batch_interval: int
    broker_version: str | None
    allow_newer: bool
    store_host: str
    timezone: str | None
    topic_attributes: Mapping[str, Mapping[str, str]]
