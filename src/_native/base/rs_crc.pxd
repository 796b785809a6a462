# CRC-32 (zlib's), by carry-less products if the machine has them.
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "rs_crc.h" nogil:
    enum:
        RS_CPU_BASELINE
        RS_CPU_AVX2
        RS_CPU_AVX512
    int rs_cpu_level
    int rs_crc_init()
    uint32_t rs_crc32(uint32_t crc, const uint8_t *p, size_t n)


cdef inline int rs_crc_import() except -1:
    """Choose this module's variants; every module that uses ``rs_crc32`` calls it at import."""
    if rs_crc_init() != 0:
        raise ImportError(
            "ROCKETSTORE_CPU must be baseline, avx2 or avx512, "
            "and this machine must be able to run it"
        )
    return 0
