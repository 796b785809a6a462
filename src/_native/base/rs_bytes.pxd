# Big-endian loads and stores (any alignment), ordered stores, prefetch.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "rs_bytes.h" nogil:
    enum:
        RS_CACHE_LINE_NBYTES

    int16_t rs_load_be16(const uint8_t *p)
    int32_t rs_load_be32(const uint8_t *p)
    int64_t rs_load_be64(const uint8_t *p)
    void rs_store_be16(uint8_t *p, int16_t value)
    void rs_store_be32(uint8_t *p, int32_t value)
    void rs_store_be64(uint8_t *p, int64_t value)
    void rs_store_be32_release(uint8_t *p, int32_t value)
    int32_t rs_load_be32_acquire(const uint8_t *p)
    int32_t rs_load_be32_shared(const uint8_t *p)
    uint64_t rs_load_u64(const uint8_t *p)
    uint32_t rs_load_u32(const uint8_t *p)
    void RS_PREFETCH_READ(const void *address)
    void RS_PREFETCH_WRITE(const void *address)
    void RS_RELEASE_FENCE()
    void RS_ACQUIRE_FENCE()
    void RS_COMPILER_BARRIER()
    bint RS_LIKELY(bint condition)
    bint RS_UNLIKELY(bint condition)
