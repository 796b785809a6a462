/* Encodes a message with any fields that fit. The result must be a good record with the same parts,
 * including its whole-record CRC, and with the size computed before. */
#include "fuzz.h"

#include "rs_encode.h"
#include "rs_hosts.h"
#include "rs_record.h"

static const uint8_t *part(fuzz_input *in, size_t most, int32_t *nbytes)
{
    size_t n = (size_t)fuzz_take(in, 2) % (most + 1);
    n = n < in->left ? n : in->left;
    const uint8_t *start = in->p;
    in->p += n;
    in->left -= n;
    *nbytes = (int32_t)n;
    return start;
}

static void parse_host(fuzz_input *in)
{
    int32_t nbytes;
    const uint8_t *bytes = part(in, 40, &nbytes);
    char *text = (char *)fuzz_copy(bytes, (size_t)nbytes + 0);
    text = (char *)realloc(text, (size_t)nbytes + 1);
    DEMAND(text != NULL);
    text[nbytes] = '\0';
    uint8_t *host = (uint8_t *)malloc(RS_HOST_V4_NBYTES);
    DEMAND(host != NULL);
    if (rs_parse_host_v4(text, host)) {
        const int32_t port = rs_load_be32(host + RS_HOST_V4_PORT_AT);
        DEMAND(port >= 0 && port <= RS_MAX_PORT);
    }
    free(host);
    free(text);
}

static void check(const uint8_t *record, int32_t size, const rs_record_fields *f)
{
    rs_parsed_record row;
    memset(&row, 0, sizeof row);
    const int flags = RS_CHECK_BODY_CRC | RS_REPORT_PROPERTY_CRC
                      | (f->property_crc ? RS_REQUIRE_PROPERTY_CRC : 0);
    const int status = rs_check(record, size, f->physical_offset, f->physical_offset + size, flags,
                                &row);
    const uint8_t *topic = f->topic;
    const int lost = topic[0] == 0 || topic[f->topic_nbytes - 1] == 0;
    DEMAND(lost ? status == RS_BAD_TOPIC
                : status == RS_OK || status == RS_NUL_PROPERTIES || status == RS_UNSAFE_TOPIC
                      || status == RS_BAD_PROPERTIES);
    if (status >= RS_FIRST_DAMAGE) {
        return;
    }
    DEMAND(row.total_size == size && row.queue_id == f->queue_id);
    DEMAND(row.body_nbytes == f->body_nbytes && row.topic_nbytes == f->topic_nbytes);
    DEMAND(memcmp(record + row.body_at, f->body, (size_t)f->body_nbytes) == 0);
    DEMAND(memcmp(record + row.topic_at, topic, (size_t)f->topic_nbytes) == 0);
    DEMAND(memcmp(record + row.properties_at, f->properties, (size_t)f->properties_nbytes) == 0);
    DEMAND(row.properties_nbytes == rs_stored_properties_nbytes(f));
    DEMAND(!f->property_crc || row.property_crc == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t host[RS_HOST_V6_NBYTES] = {10, 0, 0, 1, 0, 0, 0x2a, 0x9f};
    static int crc_ready;
    crc_ready = crc_ready ? crc_ready : rs_crc_init() + 1;
    fuzz_input in = {data, size};
    const unsigned choice = (unsigned)fuzz_take(&in, 1);
    parse_host(&in);
    rs_record_fields f;
    memset(&f, 0, sizeof f);
    f.version = choice & 1 ? 2 : 1;
    f.property_crc = choice >> 1 & 1;
    f.born_host_nbytes = choice & 4 ? RS_HOST_V6_NBYTES : RS_HOST_V4_NBYTES;
    f.store_host_nbytes = choice & 8 ? RS_HOST_V6_NBYTES : RS_HOST_V4_NBYTES;
    f.born_host = f.store_host = host;
    f.queue_id = (int32_t)(fuzz_take(&in, 4) & INT32_MAX);
    f.queue_offset = (int64_t)(fuzz_take(&in, 8) & INT64_MAX);
    f.physical_offset = (int64_t)(fuzz_take(&in, 5));
    f.sys_flag = (int32_t)fuzz_take(&in, 4);
    f.store_timestamp = (int64_t)fuzz_take(&in, 8);
    f.topic = part(&in, f.version == 2 ? 255 : 127, &f.topic_nbytes);
    f.properties = part(&in, 2000, &f.properties_nbytes);
    f.body = part(&in, 4000, &f.body_nbytes);
    f.body_crc = (int32_t)(rs_crc32(0, f.body, (size_t)f.body_nbytes) & RS_CRC_MASK);
    f.separator = rs_needs_separator(f.properties, f.properties_nbytes);
    if (f.topic_nbytes == 0) {
        return 0;
    }
    const int64_t nbytes = rs_record_nbytes(&f);
    uint8_t *record = (uint8_t *)malloc((size_t)nbytes);
    DEMAND(record != NULL);
    rs_encode_record(record, (int32_t)nbytes, &f);
    check(record, (int32_t)nbytes, &f);
    free(record);
    return 0;
}
