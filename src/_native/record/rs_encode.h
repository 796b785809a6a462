/* Writes one commit-log record in place. TOTALSIZE goes last, after a release fence: until then a
 * reader of the mapped file sees zeros and no record. */
#ifndef RS_ENCODE_H
#define RS_ENCODE_H
#include "rs_bytes.h"
#include "rs_crc.h"
#include "rs_formats.h"
#include "rs_record.h"

typedef struct {
    const uint8_t *topic;
    const uint8_t *body;
    const uint8_t *properties; /* as stored, without the whole-record CRC */
    const uint8_t *born_host;  /* as stored: 8 or 20 bytes */
    const uint8_t *store_host;
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t born_timestamp;
    int64_t store_timestamp;
    int64_t prepared_transaction_offset;
    int32_t topic_nbytes;
    int32_t body_nbytes;
    int32_t properties_nbytes;
    int32_t born_host_nbytes;
    int32_t store_host_nbytes;
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag; /* the two host bits are derived from the hosts */
    int32_t reconsume_times;
    int32_t body_crc;     /* CRC-32 of the body with the top bit cleared */
    int32_t version;      /* 1 or 2 */
    int32_t property_crc; /* append the whole-record CRC */
    int32_t separator;    /* a separator goes before it: see rs_needs_separator */
} rs_record_fields;

/* The properties need a separator before the CRC property. */
static inline int32_t rs_needs_separator(const uint8_t *properties, int32_t nbytes)
{
    return nbytes > 0 && properties[nbytes - 1] != RS_PROPERTY_SEPARATOR;
}

/* Bytes stored as properties, the CRC and its separator included. */
static inline int64_t rs_stored_properties_nbytes(const rs_record_fields *f)
{
    return (int64_t)f->properties_nbytes
           + (f->property_crc ? RS_PROPERTY_CRC32_NBYTES + (f->separator != 0) : 0);
}

static inline int64_t rs_record_nbytes(const rs_record_fields *f)
{
    return (int64_t)RS_RECORD_HEAD_NBYTES + RS_RECORD_STORED_NBYTES + RS_RECORD_TAIL_NBYTES
           + f->born_host_nbytes + f->store_host_nbytes + f->body_nbytes
           + (f->version == 2 ? RS_TOPIC_LENGTH_NBYTES_V2 : RS_TOPIC_LENGTH_NBYTES_V1)
           + f->topic_nbytes + RS_PROPERTIES_LENGTH_NBYTES + rs_stored_properties_nbytes(f);
}

static inline int32_t rs_host_flags(const rs_record_fields *f)
{
    return (f->sys_flag & ~(RS_SYS_FLAG_BORN_HOST_V6 | RS_SYS_FLAG_STORE_HOST_V6))
           | (f->born_host_nbytes == RS_HOST_V6_NBYTES ? RS_SYS_FLAG_BORN_HOST_V6 : 0)
           | (f->store_host_nbytes == RS_HOST_V6_NBYTES ? RS_SYS_FLAG_STORE_HOST_V6 : 0);
}

/* Hosts have one of two widths; a constant width lets the compiler copy them in registers. */
static inline uint8_t *rs_put_host(uint8_t *p, const uint8_t *host, int32_t nbytes)
{
    if (RS_LIKELY(nbytes == RS_HOST_V4_NBYTES)) {
        memcpy(p, host, RS_HOST_V4_NBYTES);
        return p + RS_HOST_V4_NBYTES;
    }
    memcpy(p, host, RS_HOST_V6_NBYTES);
    return p + RS_HOST_V6_NBYTES;
}

/* Write everything before the properties but TOTALSIZE; return the place of the properties. */
static inline uint8_t *rs_encode_start(uint8_t *record, const rs_record_fields *f)
{
    const int v2 = f->version == 2;
    uint8_t *p = record;
    rs_store_be32(p + RS_RECORD_HEAD_MAGIC_AT, v2 ? RS_MAGIC_V2 : RS_MAGIC_V1);
    rs_store_be32(p + RS_RECORD_HEAD_BODY_CRC_AT, f->body_crc);
    rs_store_be32(p + RS_RECORD_HEAD_QUEUE_ID_AT, f->queue_id);
    rs_store_be32(p + RS_RECORD_HEAD_FLAG_AT, f->flag);
    rs_store_be64(p + RS_RECORD_HEAD_QUEUE_OFFSET_AT, f->queue_offset);
    rs_store_be64(p + RS_RECORD_HEAD_PHYSICAL_OFFSET_AT, f->physical_offset);
    rs_store_be32(p + RS_RECORD_HEAD_SYS_FLAG_AT, rs_host_flags(f));
    rs_store_be64(p + RS_RECORD_HEAD_BORN_TIMESTAMP_AT, f->born_timestamp);
    p = rs_put_host(p + RS_RECORD_HEAD_NBYTES, f->born_host, f->born_host_nbytes);
    rs_store_be64(p + RS_RECORD_STORED_STORE_TIMESTAMP_AT, f->store_timestamp);
    p = rs_put_host(p + RS_RECORD_STORED_NBYTES, f->store_host, f->store_host_nbytes);
    rs_store_be32(p + RS_RECORD_TAIL_RECONSUME_TIMES_AT, f->reconsume_times);
    rs_store_be64(p + RS_RECORD_TAIL_PREPARED_TRANSACTION_OFFSET_AT,
                  f->prepared_transaction_offset);
    rs_store_be32(p + RS_RECORD_TAIL_BODY_LENGTH_AT, f->body_nbytes);
    p += RS_RECORD_TAIL_NBYTES;
    memcpy(p, f->body, (size_t)f->body_nbytes);
    p += f->body_nbytes;
    if (v2) {
        rs_store_be16(p, (int16_t)f->topic_nbytes);
        p += RS_TOPIC_LENGTH_NBYTES_V2;
    } else {
        *p = (uint8_t)f->topic_nbytes;
        p += RS_TOPIC_LENGTH_NBYTES_V1;
    }
    memcpy(p, f->topic, (size_t)f->topic_nbytes);
    p += f->topic_nbytes;
    rs_store_be16(p, (int16_t)rs_stored_properties_nbytes(f));
    return p + RS_PROPERTIES_LENGTH_NBYTES;
}

/* Write the CRC property at `at`, the record's last 20 bytes. It covers TOTALSIZE, which is not
 * written yet. */
static inline void rs_put_property_crc(uint8_t *record, uint8_t *at, int32_t total_size)
{
    const int32_t name_nbytes = (int32_t)sizeof RS_PROPERTY_CRC32 - 1;
    uint8_t size[4];
    rs_store_be32(size, total_size);
    uint32_t crc = rs_crc32(0, size, sizeof size);
    crc = rs_crc32(crc, record + sizeof size, (size_t)(at - record) - sizeof size) & RS_CRC_MASK;
    memcpy(at, RS_PROPERTY_CRC32, (size_t)name_nbytes);
    at += name_nbytes;
    *at++ = RS_NAME_VALUE_SEPARATOR;
    for (int32_t i = name_nbytes + 2; i < RS_PROPERTY_CRC32_NBYTES; i++, crc /= 10) {
        *at++ = (uint8_t)('0' + crc % 10);
    }
    *at = RS_PROPERTY_SEPARATOR;
}

/* After the properties are written (up to `end`): write the CRC property if wanted, then TOTALSIZE,
 * which makes the record visible. */
static inline void rs_encode_finish(uint8_t *record, uint8_t *end, int32_t total_size,
                                    const rs_record_fields *f)
{
    if (f->property_crc) {
        if (f->separator) {
            *end++ = RS_PROPERTY_SEPARATOR;
        }
        rs_put_property_crc(record, end, total_size);
    }
    rs_store_be32_release(record + RS_RECORD_HEAD_TOTAL_SIZE_AT, total_size);
}

/* Write the whole record. Requires: room for total_size == rs_record_nbytes(f) bytes, lengths that
 * fit their fields. */
static inline void rs_encode_record(uint8_t *record, int32_t total_size, const rs_record_fields *f)
{
    uint8_t *p = rs_encode_start(record, f);
    memcpy(p, f->properties, (size_t)f->properties_nbytes);
    rs_encode_finish(record, p + f->properties_nbytes, total_size, f);
}

/* End a segment: the marker that spans its last `left` bytes (8 at least). */
static inline void rs_encode_blank(uint8_t *p, int32_t left)
{
    rs_store_be32(p + RS_BLANK_MAGIC_AT, RS_BLANK_MAGIC);
    rs_store_be32_release(p + RS_BLANK_TOTAL_SIZE_AT, left);
}

#endif
