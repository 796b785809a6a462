/* Puts keys into an index file with any content. Every write must stay inside the file, the count
 * must not exceed the capacity, and each new entry must be reached from its slot. */
#include "fuzz.h"

#include "rs_index.h"

static int is_reached(const rs_index *index, uint32_t slot, int32_t number)
{
    return rs_load_be32(rs_index_slot_at(index, slot)) == number;
}

static void put(rs_index *index, fuzz_input *in)
{
    const int32_t hash = rs_index_key_hash((int32_t)fuzz_take(in, 4));
    const int64_t offset = (int64_t)fuzz_take(in, 8), time = (int64_t)fuzz_take(in, 8);
    DEMAND(hash >= 0);
    const uint32_t slot = rs_index_slot(index, hash);
    DEMAND(slot == (uint32_t)hash % index->slots);
    const int32_t number = index->count;
    rs_index_put(index, hash, offset, time);
    DEMAND(is_reached(index, slot, number) && index->count == number + 1);
    const uint8_t *entry = rs_index_entry_at(index, number);
    const int32_t before = rs_load_be32(entry + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT);
    DEMAND(before >= 0 && before <= number);
    DEMAND(rs_load_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT) >= 0);
    rs_index_store_header(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    const int64_t slots = (int64_t)(fuzz_take(&in, 1) % 64), entries = (int64_t)fuzz_take(&in, 1);
    const int puts = (int)(fuzz_take(&in, 1) % 32);
    const int64_t nbytes = rs_index_file_nbytes(slots, entries);
    DEMAND((nbytes < 0) == (slots < 1 || entries < 1));
    if (nbytes < 0) {
        return 0;
    }
    uint8_t *file = (uint8_t *)calloc(1, (size_t)nbytes);
    DEMAND(file != NULL);
    const size_t given = in.left < (size_t)nbytes ? in.left : (size_t)nbytes;
    memcpy(file, in.p, given);
    rs_index index;
    DEMAND(!rs_index_open(&index, file, nbytes - 1, slots, entries));
    DEMAND(rs_index_open(&index, file, nbytes, slots, entries));
    DEMAND(index.count >= 1);
    for (int i = 0; i < puts && !rs_index_is_full(&index); i++) {
        put(&index, &in);
    }
    free(file);
    return 0;
}
