/* Big-endian loads and stores with any alignment, ordered stores, prefetch. */
#ifndef RS_BYTES_H
#define RS_BYTES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#include <stdlib.h>
#define RS_SWAP16(v) _byteswap_ushort(v)
#define RS_SWAP32(v) _byteswap_ulong(v)
#define RS_SWAP64(v) _byteswap_uint64(v)
#define RS_HOST_IS_BIG_ENDIAN 0
#define RS_LIKELY(condition) (condition)
#define RS_UNLIKELY(condition) (condition)
#define RS_RELEASE_FENCE() _ReadWriteBarrier()
#define RS_ACQUIRE_FENCE() _ReadWriteBarrier()
#define RS_COMPILER_BARRIER() _ReadWriteBarrier()
#define RS_PREFETCH_READ(address) ((void)(address))
#define RS_PREFETCH_WRITE(address) ((void)(address))
#define RS_UNUSED
#define RS_NOINLINE __declspec(noinline)
#define RS_ALWAYS_INLINE __forceinline
#else
#define RS_SWAP16(v) __builtin_bswap16(v)
#define RS_SWAP32(v) __builtin_bswap32(v)
#define RS_SWAP64(v) __builtin_bswap64(v)
#define RS_HOST_IS_BIG_ENDIAN (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
#define RS_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define RS_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define RS_RELEASE_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
#define RS_ACQUIRE_FENCE() __atomic_thread_fence(__ATOMIC_ACQUIRE)
/* All earlier stores are in memory when a signal interrupts what follows. */
#define RS_COMPILER_BARRIER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define RS_PREFETCH_READ(address) __builtin_prefetch((address), 0)
#define RS_PREFETCH_WRITE(address) __builtin_prefetch((address), 1)
/* For functions that a module may include without calling. */
#define RS_UNUSED __attribute__((unused))
#define RS_NOINLINE __attribute__((noinline))
#define RS_ALWAYS_INLINE inline __attribute__((always_inline))
#endif

#define RS_CACHE_LINE_NBYTES 64

static inline int16_t rs_load_be16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return (int16_t)(RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP16(v));
}

static inline int32_t rs_load_be32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return (int32_t)(RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP32(v));
}

static inline int64_t rs_load_be64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return (int64_t)(RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP64(v));
}

static inline void rs_store_be16(uint8_t *p, int16_t value)
{
    uint16_t v = (uint16_t)value;
    v = RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP16(v);
    memcpy(p, &v, sizeof v);
}

static inline void rs_store_be32(uint8_t *p, int32_t value)
{
    uint32_t v = (uint32_t)value;
    v = RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP32(v);
    memcpy(p, &v, sizeof v);
}

static inline void rs_store_be64(uint8_t *p, int64_t value)
{
    uint64_t v = (uint64_t)value;
    v = RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP64(v);
    memcpy(p, &v, sizeof v);
}

/* Store a word after everything written before it. The word may straddle two cache lines, where no
 * machine stores it atomically: readers must check its value. */
static inline void rs_store_be32_release(uint8_t *p, int32_t value)
{
#ifdef __SANITIZE_THREAD__
    /* ThreadSanitizer does not support fences; it follows an atomic store and the load that sees
     * it. */
    uint32_t v = (uint32_t)value;
    v = RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP32(v);
    __atomic_store_n((uint32_t *)(void *)p, v, __ATOMIC_RELEASE);
#else
    RS_RELEASE_FENCE();
    rs_store_be32(p, value);
#endif
}

/* Load a word before everything read after it. */
static inline int32_t rs_load_be32_acquire(const uint8_t *p)
{
#ifdef __SANITIZE_THREAD__
    uint32_t v = __atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_ACQUIRE);
    return (int32_t)(RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP32(v));
#else
    int32_t value = rs_load_be32(p);
    RS_ACQUIRE_FENCE();
    return value;
#endif
}

/* Words of a file that another process may be storing, in any order. If they are aligned, a word is
 * entirely old or entirely new. */
static inline int64_t rs_load_be64_shared(const uint8_t *p)
{
#ifdef __SANITIZE_THREAD__
    uint64_t v = __atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_RELAXED);
    return (int64_t)(RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP64(v));
#else
    return rs_load_be64(p);
#endif
}

static inline int32_t rs_load_be32_shared(const uint8_t *p)
{
#ifdef __SANITIZE_THREAD__
    uint32_t v = __atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_RELAXED);
    return (int32_t)(RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP32(v));
#else
    return rs_load_be32(p);
#endif
}

static inline void rs_store_be64_shared(uint8_t *p, int64_t value)
{
#ifdef __SANITIZE_THREAD__
    uint64_t v = (uint64_t)value;
    v = RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP64(v);
    __atomic_store_n((uint64_t *)(void *)p, v, __ATOMIC_RELAXED);
#else
    rs_store_be64(p, value);
#endif
}

static inline void rs_store_be32_shared(uint8_t *p, int32_t value)
{
#ifdef __SANITIZE_THREAD__
    uint32_t v = (uint32_t)value;
    v = RS_HOST_IS_BIG_ENDIAN ? v : RS_SWAP32(v);
    __atomic_store_n((uint32_t *)(void *)p, v, __ATOMIC_RELAXED);
#else
    rs_store_be32(p, value);
#endif
}

/* Eight or four bytes in the machine's byte order, for comparing and for building words. */
static inline uint64_t rs_load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t rs_load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
