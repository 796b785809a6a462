/* Reads any bytes as a log: check, scan, search, properties, and the queues that a record names.
 *
 * Input: four bytes that choose flags, offset and repairs, then the log. Repairs correct fields that
 * a random change breaks (size, own offset, length of the properties, the body's CRC), so that more
 * inputs reach the code after these checks. */
#include "fuzz.h"

#include "rs_multi_dispatch.h"
#include "rs_record.h"
#include "rs_scan.h"

enum { ROWS = 32 };
static const int64_t DELAYS[] = {1000, 5000, -1, INT64_MAX, 0};
static const int64_t PLACES[] = {0, 1, 4096, 1 << 20, (int64_t)1 << 40, INT64_MAX / 2};

static int in_record(const rs_parsed_record *row, int32_t at, int32_t nbytes)
{
    return at < 0 || (nbytes >= 0 && at <= row->total_size - nbytes);
}

static void look_at_record(const uint8_t *p, int64_t available, const rs_parsed_record *row,
                           int32_t flags)
{
    DEMAND(row->total_size > RS_RECORD_HEAD_NBYTES && row->total_size <= available);
    DEMAND(row->topic_nbytes > 0 && row->queue_id >= 0 && row->queue_offset >= 0);
    DEMAND(in_record(row, row->body_at, row->body_nbytes));
    DEMAND(in_record(row, row->topic_at, row->topic_nbytes));
    DEMAND(row->properties_at + row->properties_nbytes == row->total_size);
    DEMAND(in_record(row, row->tags_at, row->tags_nbytes));
    DEMAND(in_record(row, row->keys_at, row->keys_nbytes));
    DEMAND(in_record(row, row->unique_key_at, row->unique_key_nbytes));
    rs_multi_walk walk;
    rs_multi_place place;
    if (rs_multi_begin(&walk, p, row, flags)) {
        while (rs_multi_next(&walk, &place)) {
            DEMAND(place.name >= p && place.name_nbytes > 0 && place.queue_offset >= 0);
            DEMAND(place.name + place.name_nbytes <= p + row->total_size);
            DEMAND(rs_multi_names(p, row, place.name, place.name_nbytes, place.queue_id));
        }
    }
}

static void repair(uint8_t *log, size_t n, int64_t base_offset, unsigned how)
{
    rs_parsed_record row;
    memset(&row, 0, sizeof row);
    if (n < RS_RECORD_MIN_NBYTES || n > INT32_MAX) {
        return;
    }
    if (how & 1) {
        rs_store_be32(log, (int32_t)n);
    }
    if (how & 2) {
        rs_store_be64(log + RS_RECORD_HEAD_PHYSICAL_OFFSET_AT, base_offset);
    }
    if (rs_check_size(log, (int64_t)n, (int64_t)n, &row) != RS_OK) {
        return;
    }
    if (how & 4) {
        const int32_t header = rs_header_nbytes(rs_load_be32(log + RS_RECORD_HEAD_SYS_FLAG_AT));
        const int32_t width = row.magic == RS_MAGIC_V2 ? 2 : 1;
        const int32_t body = header <= row.total_size ? rs_load_be32(log + header - 4) : -1;
        if (body >= 0 && (int64_t)header + body + width + 1 <= row.total_size) {
            const uint8_t *topic = log + header + body;
            const int32_t nbytes = width == 2 ? rs_load_be16(topic) : (int8_t)*topic;
            const int64_t at = (int64_t)header + body + width + nbytes;
            if (nbytes >= 0 && at + 2 <= row.total_size) {
                rs_store_be16(log + at, (int16_t)(row.total_size - at - 2));
            }
        }
    }
    if ((how & 8) && rs_check_lengths(log, &row) == RS_OK) {
        const uint32_t crc = rs_crc32(0, log + row.body_at, (size_t)row.body_nbytes);
        rs_store_be32(log + RS_RECORD_HEAD_BODY_CRC_AT, (int32_t)(crc & RS_CRC_MASK));
    }
}

static int64_t find(rs_scan *scan, int64_t start, uint32_t *marks, int *status)
{
    scan->position = start;
    scan->marks = marks;
    scan->count = -1;
    *status = rs_find_record(scan);
    return *status == RS_OK ? scan->count : -1;
}

static void search(rs_scan *scan, int64_t start)
{
    const size_t count = rs_crc_mark_count((uint64_t)(scan->stop - start));
    uint32_t *marks = (uint32_t *)malloc(count * sizeof *marks);
    DEMAND(marks != NULL);
    int plain_status, marked_status;
    const int64_t plain = find(scan, start, NULL, &plain_status);
    const int64_t marked = find(scan, start, marks, &marked_status);
    DEMAND(plain_status == RS_LIMIT || plain == marked);
    DEMAND(marked_status == RS_OK || marked_status == RS_END);
    DEMAND(marked < scan->stop && (marked < 0 || marked >= start));
    free(marks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int crc_ready;
    crc_ready = crc_ready ? crc_ready : rs_crc_init() + 1;
    fuzz_input in = {data, size};
    const unsigned flags = (unsigned)fuzz_take(&in, 1), how = (unsigned)fuzz_take(&in, 1);
    const size_t place = (size_t)fuzz_take(&in, 1) % (sizeof PLACES / sizeof *PLACES);
    const unsigned more = (unsigned)fuzz_take(&in, 1);
    const size_t n = in.left;
    uint8_t *log = fuzz_copy(in.p, n);
    repair(log, n, PLACES[place], how);

    rs_parsed_record row;
    memset(&row, 0, sizeof row);
    const int64_t segment_end = PLACES[place] + (int64_t)n + (more & 1 ? 100 : 0);
    int status = rs_check(log, (int64_t)n, PLACES[place], segment_end, (int)(flags & 31), &row);
    const int64_t room = status == RS_BLANK ? segment_end - PLACES[place] : (int64_t)n;
    DEMAND(status == row.status && row.total_size >= 0 && row.total_size <= room);
    if (rs_is_complete(status)) {
        rs_parse_properties(log, &row, DELAYS, (int32_t)(more & 3));
        look_at_record(log, (int64_t)n, &row, (int32_t)(more >> 4));
    }

    rs_parsed_record rows[ROWS];
    rs_scan scan = {
        .buffer = log,
        .stop = (int64_t)n,
        .base_offset = PLACES[place],
        .segment_end = segment_end,
        .delay_ms = DELAYS,
        .delay_count = (int32_t)(more & 3),
        .rows = (uint8_t *)rows,
        .capacity = ROWS,
        .flags = (int32_t)(flags & 31),
    };
    rs_scan_records(&scan);
    DEMAND(scan.count >= 0 && scan.count <= ROWS && scan.position <= (int64_t)n);
    for (int64_t i = 0; i < scan.count; i++) {
        look_at_record(log + rows[i].position, (int64_t)n - rows[i].position, rows + i, 0);
    }
    search(&scan, n > 0 ? (int64_t)(how >> 4) % (int64_t)n : 0);
    free(log);
    return 0;
}
