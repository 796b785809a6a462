/* CRC-32 as zlib computes it. Bodies: slice-by-8 tables everywhere; folding by carry-less products
 * of 128 bits (PCLMUL, PMULL), of 256 and of 512 bits (VPCLMULQDQ), chosen once when a module is
 * imported.
 *
 * Folding: the running remainder is kept as 128 bits; moving it over D more bits of message means
 * multiplying its halves by x^(D+32) and x^(D-32) modulo the polynomial. RS_FOLD_<D> are these two,
 * bit-reflected and shifted by one. tests/unit/kernels/test_record_crc.py recomputes them. */
#ifndef RS_CRC_H
#define RS_CRC_H
#include "rs_bytes.h"
#include <stdlib.h>

#if (defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)))
#define RS_CRC_X86 1
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__)) && !RS_HOST_IS_BIG_ENDIAN
#define RS_CRC_ARM 1
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#define RS_FOLD_128_LOW 0x01751997d0
#define RS_FOLD_128_HIGH 0x00ccaa009e
#define RS_FOLD_256_LOW 0x00f1da05aa
#define RS_FOLD_256_HIGH 0x015a546366
#define RS_FOLD_384_LOW 0x003db1ecdc
#define RS_FOLD_384_HIGH 0x0174359406
#define RS_FOLD_512_LOW 0x0154442bd4
#define RS_FOLD_512_HIGH 0x01c6e41596
#define RS_FOLD_1024_LOW 0x01e88ef372
#define RS_FOLD_1024_HIGH 0x014a7fe880
#define RS_FOLD_2048_LOW 0x011542778a
#define RS_FOLD_2048_HIGH 0x01322d1430
#define RS_FOLD_64 0x0163cd6124
/* The polynomial and the quotient x^64 / P for Barrett's reduction, reflected. */
#define RS_CRC_POLYNOMIAL 0x01db710641
#define RS_CRC_QUOTIENT 0x01f7011641
#define RS_CRC_TABLE_POLYNOMIAL 0xedb88320u

typedef uint32_t (*rs_crc_body)(uint32_t crc, const uint8_t *p, size_t n);

static uint32_t rs_crc_table[8][256];

static inline void rs_crc_fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (RS_CRC_TABLE_POLYNOMIAL & (0u - (crc & 1u)));
        }
        rs_crc_table[0][i] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = rs_crc_table[k - 1][i];
            rs_crc_table[k][i] = (crc >> 8) ^ rs_crc_table[0][crc & 0xffu];
        }
    }
}

/* All variants take and return the inverted remainder. */
RS_UNUSED static uint32_t rs_crc_slice8(uint32_t crc, const uint8_t *p, size_t n)
{
    while (n >= 8) {
        uint64_t v = rs_load_u64(p);
        v = (RS_HOST_IS_BIG_ENDIAN ? RS_SWAP64(v) : v) ^ crc;
        crc = rs_crc_table[7][v & 0xff] ^ rs_crc_table[6][(v >> 8) & 0xff]
            ^ rs_crc_table[5][(v >> 16) & 0xff] ^ rs_crc_table[4][(v >> 24) & 0xff]
            ^ rs_crc_table[3][(v >> 32) & 0xff] ^ rs_crc_table[2][(v >> 40) & 0xff]
            ^ rs_crc_table[1][(v >> 48) & 0xff] ^ rs_crc_table[0][v >> 56];
        p += 8;
        n -= 8;
    }
    while (n-- > 0) {
        crc = (crc >> 8) ^ rs_crc_table[0][(crc ^ *p++) & 0xffu];
    }
    return crc;
}

/* --- 128-bit folding, one text for x86-64 and arm64 ------------------------------------------- */

#if RS_CRC_X86
#define RS_CRC_TARGET __attribute__((target("pclmul,sse4.1,ssse3")))
typedef __m128i rs_v128;
#define RS_V128_LOAD(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define RS_V128_PAIR(low, high) _mm_set_epi64x((long long)(high), (long long)(low))
#define RS_V128_XOR(a, b) _mm_xor_si128((a), (b))
#define RS_V128_AND(a, b) _mm_and_si128((a), (b))
#define RS_V128_PRODUCT_LOW(a, b) _mm_clmulepi64_si128((a), (b), 0x00)
#define RS_V128_PRODUCT_HIGH(a, b) _mm_clmulepi64_si128((a), (b), 0x11)
#define RS_V128_PRODUCT_LOW_HIGH(a, b) _mm_clmulepi64_si128((a), (b), 0x10)
#define RS_V128_SHUFFLE(v, index) _mm_shuffle_epi8((v), (index))
/* `b` where the top bit of the selector's byte is set, else `a`. */
#define RS_V128_SELECT(a, b, selector) _mm_blendv_epi8((a), (b), (selector))
#define RS_V128_DROP8(v) _mm_srli_si128((v), 8)
#define RS_V128_DROP4(v) _mm_srli_si128((v), 4)
#define RS_V128_WORD1(v) ((uint32_t)_mm_extract_epi32((v), 1))
#elif RS_CRC_ARM
#if defined(__clang__)
#define RS_CRC_TARGET __attribute__((target("aes")))
#else
#define RS_CRC_TARGET __attribute__((target("+crypto")))
#endif
typedef uint8x16_t rs_v128;
#define RS_V128_LOAD(p) vld1q_u8(p)
#define RS_V128_PAIR(low, high) \
    vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)))
#define RS_V128_XOR(a, b) veorq_u8((a), (b))
#define RS_V128_AND(a, b) vandq_u8((a), (b))
#define RS_V128_HALF(v, i) ((poly64_t)vgetq_lane_u64(vreinterpretq_u64_u8(v), (i)))
#define RS_V128_PRODUCT_LOW(a, b) \
    vreinterpretq_u8_p128(vmull_p64(RS_V128_HALF((a), 0), RS_V128_HALF((b), 0)))
#define RS_V128_PRODUCT_HIGH(a, b) \
    vreinterpretq_u8_p128(vmull_p64(RS_V128_HALF((a), 1), RS_V128_HALF((b), 1)))
#define RS_V128_PRODUCT_LOW_HIGH(a, b) \
    vreinterpretq_u8_p128(vmull_p64(RS_V128_HALF((a), 0), RS_V128_HALF((b), 1)))
#define RS_V128_SHUFFLE(v, index) vqtbl1q_u8((v), (index))
#define RS_V128_SELECT(a, b, selector) vbslq_u8(vcgeq_u8((selector), vdupq_n_u8(0x80)), (b), (a))
#define RS_V128_DROP8(v) vextq_u8((v), vdupq_n_u8(0), 8)
#define RS_V128_DROP4(v) vextq_u8((v), vdupq_n_u8(0), 4)
#define RS_V128_WORD1(v) vgetq_lane_u32(vreinterpretq_u32_u8(v), 1)
#endif

#if RS_CRC_X86 || RS_CRC_ARM
/* 16 bytes from here shift a vector: from byte 16 the identity, further on towards lower bytes. */
static const uint8_t rs_crc_slide[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

RS_CRC_TARGET static inline rs_v128 rs_crc_fold(rs_v128 remainder, rs_v128 factors, rs_v128 data)
{
    rs_v128 low = RS_V128_PRODUCT_LOW(remainder, factors);
    rs_v128 high = RS_V128_PRODUCT_HIGH(remainder, factors);
    return RS_V128_XOR(RS_V128_XOR(low, high), data);
}

/* The 32-bit remainder of 128 folded bits. */
RS_CRC_TARGET static inline uint32_t rs_crc_reduce(rs_v128 x)
{
    const rs_v128 mask = RS_V128_PAIR(0xffffffffu, 0xffffffffu);
    const rs_v128 fold_128 = RS_V128_PAIR(RS_FOLD_128_LOW, RS_FOLD_128_HIGH);
    const rs_v128 fold_64 = RS_V128_PAIR(RS_FOLD_64, 0);
    const rs_v128 barrett = RS_V128_PAIR(RS_CRC_POLYNOMIAL, RS_CRC_QUOTIENT);
    x = RS_V128_XOR(RS_V128_DROP8(x), RS_V128_PRODUCT_LOW_HIGH(x, fold_128));
    x = RS_V128_XOR(RS_V128_DROP4(x), RS_V128_PRODUCT_LOW(RS_V128_AND(x, mask), fold_64));
    rs_v128 q = RS_V128_PRODUCT_LOW_HIGH(RS_V128_AND(x, mask), barrett);
    q = RS_V128_PRODUCT_LOW(RS_V128_AND(q, mask), barrett);
    return RS_V128_WORD1(RS_V128_XOR(x, q));
}

/* Fold the rest (n bytes; p is readable 16 bytes back if n < 16) into x and reduce. */
RS_CRC_TARGET static inline uint32_t rs_crc_finish(rs_v128 x, const uint8_t *p, size_t n)
{
    const rs_v128 fold_128 = RS_V128_PAIR(RS_FOLD_128_LOW, RS_FOLD_128_HIGH);
    for (; n >= 16; p += 16, n -= 16) {
        x = rs_crc_fold(x, fold_128, RS_V128_LOAD(p));
    }
    if (n > 0) {
        /* x and the last n bytes are one string: fold its first n bytes over its last 16. */
        rs_v128 keep = RS_V128_LOAD(rs_crc_slide + 16 + n);
        rs_v128 last = RS_V128_LOAD(p + n - 16);
        rs_v128 tail = RS_V128_SELECT(RS_V128_SHUFFLE(x, keep), last, keep);
        x = rs_crc_fold(RS_V128_SHUFFLE(x, RS_V128_LOAD(rs_crc_slide + n)), fold_128, tail);
    }
    return rs_crc_reduce(x);
}

RS_CRC_TARGET RS_UNUSED static uint32_t rs_crc_fold128(uint32_t crc, const uint8_t *p, size_t n)
{
    if (n < 16) {
        return rs_crc_slice8(crc, p, n);
    }
    rs_v128 x = RS_V128_XOR(RS_V128_LOAD(p), RS_V128_PAIR(crc, 0));
    p += 16;
    n -= 16;
    if (n >= 112) {
        const rs_v128 fold_128 = RS_V128_PAIR(RS_FOLD_128_LOW, RS_FOLD_128_HIGH);
        const rs_v128 fold_512 = RS_V128_PAIR(RS_FOLD_512_LOW, RS_FOLD_512_HIGH);
        rs_v128 b = RS_V128_LOAD(p), c = RS_V128_LOAD(p + 16), d = RS_V128_LOAD(p + 32);
        for (p += 48, n -= 48; n >= 64; p += 64, n -= 64) {
            x = rs_crc_fold(x, fold_512, RS_V128_LOAD(p));
            b = rs_crc_fold(b, fold_512, RS_V128_LOAD(p + 16));
            c = rs_crc_fold(c, fold_512, RS_V128_LOAD(p + 32));
            d = rs_crc_fold(d, fold_512, RS_V128_LOAD(p + 48));
        }
        x = rs_crc_fold(x, fold_128, b);
        x = rs_crc_fold(x, fold_128, c);
        x = rs_crc_fold(x, fold_128, d);
    }
    return rs_crc_finish(x, p, n);
}
#endif

/* --- 256-bit folding, for processors without AVX-512 ------------------------------------------ */

#if RS_CRC_X86
#define RS_CRC_TARGET_256 __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1,ssse3")))
#define RS_V256_LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))

RS_CRC_TARGET_256 static inline __m256i rs_crc_fold_half(__m256i x, __m256i factors, __m256i data)
{
    const __m256i low = _mm256_clmulepi64_epi128(x, factors, 0x00);
    const __m256i high = _mm256_clmulepi64_epi128(x, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), data);
}

RS_CRC_TARGET_256 RS_UNUSED static uint32_t rs_crc_fold256(uint32_t crc, const uint8_t *p,
                                                           size_t n)
{
    if (n < 256) {
        return rs_crc_fold128(crc, p, n);
    }
    const __m256i fold_256 =
        _mm256_broadcastsi128_si256(RS_V128_PAIR(RS_FOLD_256_LOW, RS_FOLD_256_HIGH));
    const __m256i fold_1024 =
        _mm256_broadcastsi128_si256(RS_V128_PAIR(RS_FOLD_1024_LOW, RS_FOLD_1024_HIGH));
    __m256i a = _mm256_xor_si256(RS_V256_LOAD(p),
                                 _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
    __m256i b = RS_V256_LOAD(p + 32), c = RS_V256_LOAD(p + 64), d = RS_V256_LOAD(p + 96);
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) {
        a = rs_crc_fold_half(a, fold_1024, RS_V256_LOAD(p));
        b = rs_crc_fold_half(b, fold_1024, RS_V256_LOAD(p + 32));
        c = rs_crc_fold_half(c, fold_1024, RS_V256_LOAD(p + 64));
        d = rs_crc_fold_half(d, fold_1024, RS_V256_LOAD(p + 96));
    }
    a = rs_crc_fold_half(a, fold_256, b);
    a = rs_crc_fold_half(a, fold_256, c);
    a = rs_crc_fold_half(a, fold_256, d);
    const rs_v128 fold_128 = RS_V128_PAIR(RS_FOLD_128_LOW, RS_FOLD_128_HIGH);
    const rs_v128 last =
        rs_crc_fold(_mm256_castsi256_si128(a), fold_128, _mm256_extracti128_si256(a, 1));
    return rs_crc_finish(last, p, n);
}
#endif

/* --- 512-bit folding -------------------------------------------------------------------------- */

#if RS_CRC_X86
#define RS_CRC_TARGET_512 \
    __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.1,ssse3")))

RS_CRC_TARGET_512 static inline __m512i rs_crc_fold_wide(__m512i x, __m512i factors, __m512i data)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, factors, 0x00),
                                     _mm512_clmulepi64_epi128(x, factors, 0x11), data, 0x96);
}

RS_CRC_TARGET_512 RS_UNUSED static uint32_t rs_crc_fold512(uint32_t crc, const uint8_t *p,
                                                           size_t n)
{
    if (n < 64) {
        return rs_crc_fold128(crc, p, n);
    }
    const __m512i fold_512 =
        _mm512_broadcast_i32x4(RS_V128_PAIR(RS_FOLD_512_LOW, RS_FOLD_512_HIGH));
    __m512i x = _mm512_xor_si512(_mm512_loadu_si512(p),
                                 _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    p += 64;
    n -= 64;
    if (n >= 448) {
        const __m512i fold_2048 =
            _mm512_broadcast_i32x4(RS_V128_PAIR(RS_FOLD_2048_LOW, RS_FOLD_2048_HIGH));
        __m512i b = _mm512_loadu_si512(p), c = _mm512_loadu_si512(p + 64),
                d = _mm512_loadu_si512(p + 128);
        for (p += 192, n -= 192; n >= 256; p += 256, n -= 256) {
            x = rs_crc_fold_wide(x, fold_2048, _mm512_loadu_si512(p));
            b = rs_crc_fold_wide(b, fold_2048, _mm512_loadu_si512(p + 64));
            c = rs_crc_fold_wide(c, fold_2048, _mm512_loadu_si512(p + 128));
            d = rs_crc_fold_wide(d, fold_2048, _mm512_loadu_si512(p + 192));
        }
        x = rs_crc_fold_wide(x, fold_512, b);
        x = rs_crc_fold_wide(x, fold_512, c);
        x = rs_crc_fold_wide(x, fold_512, d);
    }
    for (; n >= 64; p += 64, n -= 64) {
        x = rs_crc_fold_wide(x, fold_512, _mm512_loadu_si512(p));
    }
    /* Lane k is 384 - 128 k bits before the last lane, which is only added. */
    const __m512i lanes = _mm512_set_epi64(
        0, 0, RS_FOLD_128_HIGH, RS_FOLD_128_LOW, RS_FOLD_256_HIGH, RS_FOLD_256_LOW,
        RS_FOLD_384_HIGH, RS_FOLD_384_LOW);
    __m512i folded = rs_crc_fold_wide(x, lanes, _mm512_maskz_mov_epi64(0xc0, x));
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(folded),
                                    _mm512_extracti64x4_epi64(folded, 1));
    rs_v128 last = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return rs_crc_finish(last, p, n);
}
#endif

/* --- Choice ----------------------------------------------------------------------------------- */

/* Variants in ascending order; the words are those of the environment variable ROCKETSTORE_CPU. */
enum {
    RS_CPU_BASELINE = 0,
    RS_CPU_AVX2 = 1,
    RS_CPU_AVX512 = 2,
    RS_CPU_BEST = 3,
    RS_CPU_UNKNOWN = -1,
};

static int rs_cpu_folds_256 = 0;
static rs_crc_body rs_crc_chosen = rs_crc_slice8;
static int rs_cpu_level = RS_CPU_BASELINE;

#if RS_CRC_X86
static inline uint64_t rs_cpu_saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}
#endif

/* Features of this machine: the instructions, and registers that the system saves. */
static inline int rs_cpu_best_level(void)
{
#if RS_CRC_X86
    unsigned int a, b, c, d, extended_b = 0, extended_c = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return RS_CPU_BASELINE;
    }
    /* PCLMUL SSSE3 SSE4.1 OSXSAVE */
    const unsigned int needed = (1u << 1) | (1u << 9) | (1u << 19) | (1u << 27);
    if ((c & needed) != needed) {
        return RS_CPU_BASELINE;
    }
    const uint64_t saved = rs_cpu_saved_state();
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        extended_b = b;
        extended_c = c;
    }
    const unsigned int avx512 = (1u << 16) | (1u << 30) | (1u << 31); /* F BW VL */
    if ((saved & 0x06) != 0x06 || !(extended_b & (1u << 5))) {
        return RS_CPU_BASELINE;
    }
    rs_cpu_folds_256 = (extended_c & (1u << 10)) != 0; /* VPCLMULQDQ */
    if ((saved & 0xe6) == 0xe6 && (extended_b & avx512) == avx512 && (extended_c & (1u << 10))) {
        return RS_CPU_AVX512;
    }
    return RS_CPU_AVX2;
#elif RS_CRC_ARM && defined(__linux__)
    return (getauxval(AT_HWCAP) & (1ul << 4)) ? RS_CPU_AVX2 : RS_CPU_BASELINE; /* PMULL */
#elif RS_CRC_ARM
    return RS_CPU_AVX2; /* every other arm64 system's processors have PMULL */
#else
    return RS_CPU_BASELINE;
#endif
}

static inline int rs_cpu_wanted_level(void)
{
    const char *word = getenv("ROCKETSTORE_CPU");
    if (word == NULL || word[0] == '\0') {
        return RS_CPU_BEST;
    }
    if (strcmp(word, "baseline") == 0) {
        return RS_CPU_BASELINE;
    }
    if (strcmp(word, "avx2") == 0) {
        return RS_CPU_AVX2;
    }
    return strcmp(word, "avx512") == 0 ? RS_CPU_AVX512 : RS_CPU_UNKNOWN;
}

/* Choose the variants; call once at module import. Return 0, or -1 if ROCKETSTORE_CPU is unknown or
 * names a variant that this machine cannot run. */
static inline int rs_crc_init(void)
{
    const int best = rs_cpu_best_level();
    const int wanted = rs_cpu_wanted_level();
    rs_crc_fill_table();
    if (wanted == RS_CPU_UNKNOWN || (wanted != RS_CPU_BEST && wanted > best)) {
        return -1;
    }
    rs_cpu_level = wanted == RS_CPU_BEST ? best : wanted;
#if RS_CRC_X86
    rs_crc_chosen = rs_cpu_level == RS_CPU_AVX512 ? rs_crc_fold512
                  : rs_cpu_level != RS_CPU_AVX2 ? rs_crc_slice8
                  : rs_cpu_folds_256 ? rs_crc_fold256 : rs_crc_fold128;
#elif RS_CRC_ARM
    rs_crc_chosen = rs_cpu_level == RS_CPU_BASELINE ? rs_crc_slice8 : rs_crc_fold128;
#endif
    return 0;
}

/* CRC-32 of n more bytes; `crc` is that of the bytes before them, 0 at the start. */
static inline uint32_t rs_crc32(uint32_t crc, const uint8_t *p, size_t n)
{
    return ~rs_crc_chosen(~crc, p, n);
}

#endif
