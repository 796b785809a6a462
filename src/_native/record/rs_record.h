/* The strict check of one commit-log record. Every reader of records uses it.
 *
 * It determines what is at a place of the log, reads nothing past `available` bytes, and judges a
 * record only by its own bytes and its place, never by its times or its neighbours. */
#ifndef RS_RECORD_H
#define RS_RECORD_H
#include "rs_bytes.h"
#include "rs_crc.h"
#include "rs_formats.h"
#include "rs_hash.h"
#include "rs_properties.h"
#include "rs_status.h"

#define RS_CRC_MASK 0x7fffffffu
#define RS_HOST_V6_EXTRA_NBYTES (RS_HOST_V6_NBYTES - RS_HOST_V4_NBYTES)

/* Length of the record before the topic, without the body. */
static inline int32_t rs_header_nbytes(int32_t sys_flag)
{
    return RS_RECORD_HEADER_V4_NBYTES
           + ((sys_flag & RS_SYS_FLAG_BORN_HOST_V6) ? RS_HOST_V6_EXTRA_NBYTES : 0)
           + ((sys_flag & RS_SYS_FLAG_STORE_HOST_V6) ? RS_HOST_V6_EXTRA_NBYTES : 0);
}

static inline int32_t rs_store_timestamp_at(int32_t sys_flag)
{
    return RS_RECORD_HEAD_NBYTES
           + ((sys_flag & RS_SYS_FLAG_BORN_HOST_V6) ? RS_HOST_V6_NBYTES : RS_HOST_V4_NBYTES)
           + RS_RECORD_STORED_STORE_TIMESTAMP_AT;
}

static inline int rs_is_transient(int32_t sys_flag)
{
    /* PREPARED and ROLLBACK records get no unit in a queue: their queue offset is 0. */
    return (sys_flag & RS_SYS_FLAG_TRANSACTION_PREPARED) != 0;
}

/* Size and magic, from the first eight bytes. Fills total_size and magic on RS_OK. */
static inline int rs_check_size(const uint8_t *p, int64_t available, int64_t left,
                                rs_parsed_record *out)
{
    if (RS_UNLIKELY(available < RS_BLANK_NBYTES)) {
        return available <= 0 ? RS_END : left >= RS_BLANK_NBYTES ? RS_INCOMPLETE : RS_BAD_SIZE;
    }
    const int32_t size = rs_load_be32_acquire(p + RS_RECORD_HEAD_TOTAL_SIZE_AT);
    const int32_t magic = rs_load_be32(p + RS_RECORD_HEAD_MAGIC_AT);
    out->magic = magic;
    if (RS_UNLIKELY(magic != RS_MAGIC_V1 && magic != RS_MAGIC_V2)) {
        if (magic == RS_BLANK_MAGIC) {
            const int whole = size == left && size >= RS_BLANK_NBYTES;
            out->total_size = whole ? size : 0;
            return whole ? RS_BLANK : RS_BAD_BLANK;
        }
        return magic == 0 && size == 0 ? RS_EMPTY : RS_BAD_MAGIC;
    }
    if (RS_UNLIKELY(size < RS_RECORD_MIN_NBYTES + (magic == RS_MAGIC_V2) || size > left)) {
        return RS_BAD_SIZE;
    }
    if (RS_UNLIKELY(size > available)) {
        return RS_INCOMPLETE;
    }
    out->total_size = size;
    return RS_OK;
}

/* Header numbers and the lengths of the three variable parts, which must add up. */
static inline int rs_check_lengths(const uint8_t *p, rs_parsed_record *out)
{
    const int32_t size = out->total_size;
    const int32_t topic_width =
        out->magic == RS_MAGIC_V2 ? RS_TOPIC_LENGTH_NBYTES_V2 : RS_TOPIC_LENGTH_NBYTES_V1;
    out->sys_flag = rs_load_be32(p + RS_RECORD_HEAD_SYS_FLAG_AT);
    const int32_t header = rs_header_nbytes(out->sys_flag);
    const int32_t rest = size - header - topic_width - RS_PROPERTIES_LENGTH_NBYTES;
    if (RS_UNLIKELY(rest < 0)) {
        return RS_BAD_SIZE;
    }
    out->queue_id = rs_load_be32(p + RS_RECORD_HEAD_QUEUE_ID_AT);
    if (RS_UNLIKELY(out->queue_id < 0)) {
        return RS_BAD_QUEUE_ID;
    }
    out->queue_offset = rs_load_be64(p + RS_RECORD_HEAD_QUEUE_OFFSET_AT);
    if (RS_UNLIKELY(out->queue_offset < 0)) {
        return RS_BAD_QUEUE_OFFSET;
    }
    const int32_t body_nbytes = rs_load_be32(p + header - 4);
    if (RS_UNLIKELY(body_nbytes < 0 || body_nbytes > rest)) {
        return RS_BAD_BODY_LENGTH;
    }
    const uint8_t *topic = p + header + body_nbytes;
    const int32_t topic_nbytes =
        topic_width == RS_TOPIC_LENGTH_NBYTES_V2 ? rs_load_be16(topic) : (int8_t)*topic;
    if (RS_UNLIKELY(topic_nbytes <= 0 || topic_nbytes > rest - body_nbytes)) {
        return RS_BAD_TOPIC_LENGTH;
    }
    topic += topic_width;
    const int32_t properties_nbytes = rs_load_be16(topic + topic_nbytes);
    const int32_t left = rest - body_nbytes - topic_nbytes;
    if (RS_UNLIKELY(properties_nbytes < 0 || properties_nbytes > left)) {
        return RS_BAD_PROPERTIES_LENGTH;
    }
    if (RS_UNLIKELY(properties_nbytes != left)) {
        return RS_BAD_LENGTH_SUM;
    }
    out->body_at = header;
    out->body_nbytes = body_nbytes;
    out->topic_at = header + body_nbytes + topic_width;
    out->topic_nbytes = topic_nbytes;
    out->properties_at = size - properties_nbytes;
    out->properties_nbytes = properties_nbytes;
    return RS_OK;
}

/* The other numbers, which are not checked. Requires: the lengths are right. */
static inline void rs_load_numbers(const uint8_t *p, rs_parsed_record *out)
{
    const uint8_t *tail = p + out->body_at - RS_RECORD_TAIL_NBYTES;
    out->flag = rs_load_be32(p + RS_RECORD_HEAD_FLAG_AT);
    out->body_crc = rs_load_be32(p + RS_RECORD_HEAD_BODY_CRC_AT);
    out->born_timestamp = rs_load_be64(p + RS_RECORD_HEAD_BORN_TIMESTAMP_AT);
    out->store_timestamp = rs_load_be64(p + rs_store_timestamp_at(out->sys_flag));
    out->reconsume_times = rs_load_be32(tail + RS_RECORD_TAIL_RECONSUME_TIMES_AT);
    out->prepared_transaction_offset =
        rs_load_be64(tail + RS_RECORD_TAIL_PREPARED_TRANSACTION_OFFSET_AT);
}

static inline int rs_body_crc_matches(const uint8_t *p, const rs_parsed_record *out)
{
    return out->body_nbytes == 0
           || (int32_t)(rs_crc32(0, p + out->body_at, (size_t)out->body_nbytes) & RS_CRC_MASK)
                  == rs_load_be32(p + RS_RECORD_HEAD_BODY_CRC_AT);
}

/* Check a topic that is not plain text: RS_BAD_TOPIC if a lost sector touches it, RS_UNSAFE_TOPIC
 * if it cannot name a directory, RS_OK for other UTF-8. */
RS_UNUSED static int rs_judge_topic(const uint8_t *topic, int32_t n)
{
    const uint8_t *end = topic + n;
    int malformed = 0, unsafe = 0;
    if (topic[0] == 0 || end[-1] == 0) {
        return RS_BAD_TOPIC;
    }
    while (topic < end) {
        const uint32_t point = rs_utf8_next(&topic, end, &malformed);
        unsafe |= point < 0x20 || point == 0x7f || point == '/';
    }
    return malformed || unsafe ? RS_UNSAFE_TOPIC : RS_OK;
}

static inline int rs_check_topic(const uint8_t *topic, int32_t n)
{
    if (RS_UNLIKELY(topic[0] == '.' && (n == 1 || (n == 2 && topic[1] == '.')))) {
        return RS_UNSAFE_TOPIC;
    }
#if defined(__SSE2__)
    /* Backwards from its end: the header before it is readable. */
    for (const uint8_t *end = topic + n; end > topic; end -= 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(end - 16));
        const __m128i odd =
            _mm_or_si128(_mm_cmplt_epi8(v, _mm_set1_epi8(0x20)),
                         _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('/')),
                                      _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f))));
        const ptrdiff_t before = 16 - (end - topic);
        if (RS_UNLIKELY(_mm_movemask_epi8(odd) >> (before > 0 ? before : 0))) {
            return rs_judge_topic(topic, n);
        }
    }
    return RS_OK;
#else
    return rs_judge_topic(topic, n);
#endif
}

/* Return 1 if the record ends in a whole-record CRC of the exact form that matches, 2 if it does
 * not match, 0 if there is none. The digits are stored least significant first. */
RS_UNUSED static int rs_judge_property_crc(const uint8_t *p, const rs_parsed_record *out)
{
    const int32_t name_nbytes = (int32_t)sizeof RS_PROPERTY_CRC32 - 1;
    const int32_t covered = out->total_size - RS_PROPERTY_CRC32_NBYTES;
    const uint8_t *at = p + covered, *digits = at + name_nbytes + 1;
    const int32_t count = RS_PROPERTY_CRC32_NBYTES - name_nbytes - 2;
    if (out->properties_nbytes < RS_PROPERTY_CRC32_NBYTES
        || memcmp(at, RS_PROPERTY_CRC32, (size_t)name_nbytes) != 0
        || at[name_nbytes] != RS_NAME_VALUE_SEPARATOR || digits[count] != RS_PROPERTY_SEPARATOR) {
        return 0;
    }
    for (int32_t i = 0; i < count; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return 0;
        }
    }
    uint32_t crc = rs_crc32(0, p, (size_t)covered) & RS_CRC_MASK;
    for (int32_t i = 0; i < count; i++, crc /= 10) {
        if (digits[i] != '0' + crc % 10) {
            return 2;
        }
    }
    return 1;
}

static inline int rs_check_property_crc(const uint8_t *p, int flags, rs_parsed_record *out)
{
    out->property_crc = 0;
    if (RS_LIKELY(!(flags & (RS_CHECK_PROPERTY_CRC | RS_REQUIRE_PROPERTY_CRC
                             | RS_REPORT_PROPERTY_CRC)))) {
        return RS_OK;
    }
    out->property_crc = rs_judge_property_crc(p, out);
    if ((flags & RS_REQUIRE_PROPERTY_CRC) && out->property_crc != 1) {
        return RS_BAD_PROPERTY_CRC;
    }
    return (flags & RS_CHECK_PROPERTY_CRC) && out->property_crc == 2 ? RS_BAD_PROPERTY_CRC : RS_OK;
}

/* Body, topic and properties, then the record's own offset. Requires: the lengths are right. */
static inline int rs_check_content(const uint8_t *p, int64_t physical_offset, int flags,
                                   rs_parsed_record *out)
{
    if ((flags & RS_CHECK_BODY_CRC) && RS_UNLIKELY(!rs_body_crc_matches(p, out))) {
        return RS_BAD_BODY_CRC;
    }
    const int topic = rs_check_topic(p + out->topic_at, out->topic_nbytes);
    if (RS_UNLIKELY(topic == RS_BAD_TOPIC)) {
        return RS_BAD_TOPIC;
    }
    const int nuls = rs_find_nuls(p + out->properties_at, out->properties_nbytes);
    if (RS_UNLIKELY(nuls == RS_NULS_LOST)) {
        return RS_BAD_PROPERTIES;
    }
    if (RS_UNLIKELY(rs_check_property_crc(p, flags, out) != RS_OK)) {
        return RS_BAD_PROPERTY_CRC;
    }
    const int64_t own_offset = rs_load_be64(p + RS_RECORD_HEAD_PHYSICAL_OFFSET_AT);
    if (RS_UNLIKELY(own_offset != physical_offset)) {
        const int ghost = own_offset >= 0 && own_offset < physical_offset
                          && ((flags & RS_CHECK_BODY_CRC) || rs_body_crc_matches(p, out));
        return ghost ? RS_GHOST : RS_BAD_PHYSICAL_OFFSET;
    }
    return topic != RS_OK ? topic : nuls != RS_NULS_NONE ? RS_NUL_PROPERTIES : RS_OK;
}

/* Check the bytes at p; for a complete record fill `out` (all but `position` and the columns of
 * rs_parse_properties). Return the status, also in out->status; out->total_size is the bytes to
 * skip, 0 for statuses that allow no skip.
 *
 * available: bytes that may be read from p; physical_offset: of p, not negative; segment_end:
 * physical offset of the segment's end; flags: RS_CHECK_* and RS_REPORT_PROPERTY_CRC. */
static inline int rs_check(const uint8_t *p, int64_t available, int64_t physical_offset,
                           int64_t segment_end, int flags, rs_parsed_record *out)
{
    out->total_size = 0;
    out->physical_offset = physical_offset;
    int status = rs_check_size(p, available, segment_end - physical_offset, out);
    if (RS_LIKELY(status == RS_OK)) {
        status = rs_check_lengths(p, out);
        if (RS_LIKELY(status == RS_OK)) {
            status = rs_check_content(p, physical_offset, flags, out);
            rs_load_numbers(p, out);
        }
        out->total_size = RS_LIKELY(status < RS_FIRST_DAMAGE) ? out->total_size : 0;
    }
    out->status = status;
    return status;
}

#endif
