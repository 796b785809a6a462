/* Bit maps of ext units: which consumer groups' SQL92 filters a record matches. */
#ifndef RS_BIT_MAPS_H
#define RS_BIT_MAPS_H
#include <stdlib.h>
#include "rs_sql92.h"

typedef struct {
    rs_sql92_filter *program; /* NULL: its expression does not compile; it sets no bit */
    int64_t born_time;        /* it is for records stored later */
    const uint8_t *bits;      /* of its group: as many bytes as a bit map has */
} rs_group_filter;

/* The filters of all topics; those of one topic are neighbours. */
typedef struct {
    rs_group_filter *filters;
    int32_t count;
    int32_t nbytes;  /* of a bit map */
    uint8_t *bytes;  /* all filters' bits, then room for the bit map of one record */
    int64_t errors;  /* evaluations in which RocketMQ's evaluator raises */
} rs_bit_maps;

RS_UNUSED static void rs_bit_maps_free(rs_bit_maps *maps)
{
    for (int32_t i = 0; i < maps->count; i++) {
        rs_sql92_free(maps->filters[i].program);
    }
    free(maps->filters);
    free(maps->bytes);
    memset(maps, 0, sizeof *maps);
}

/* Allocate room for `room` filters and bit maps of `nbytes`; -1 if out of memory. Requires: zeros
 * in `maps`. */
RS_UNUSED static int rs_bit_maps_reserve(rs_bit_maps *maps, int32_t room, int32_t nbytes)
{
    maps->filters = (rs_group_filter *)calloc((size_t)room + 1, sizeof *maps->filters);
    maps->bytes = (uint8_t *)calloc(((size_t)room + 1) * (size_t)nbytes + 1, 1);
    maps->nbytes = nbytes;
    return maps->filters == NULL || maps->bytes == NULL ? -1 : 0;
}

/* Add a filter. Return RS_OK, or as rs_sql92_new. Requires: room for it. */
RS_UNUSED static int rs_bit_maps_add(rs_bit_maps *maps, const uint8_t *program,
                                     int64_t program_nbytes, int64_t born_time,
                                     const uint8_t *bits)
{
    rs_group_filter *added = maps->filters + maps->count;
    uint8_t *own = maps->bytes + (size_t)maps->count * (size_t)maps->nbytes;
    const int status = program == NULL ? RS_OK
                                       : rs_sql92_new(program, program_nbytes, &added->program);
    if (status != RS_OK) {
        return status;
    }
    memcpy(own, bits, (size_t)maps->nbytes);
    added->born_time = born_time;
    added->bits = own;
    maps->count++;
    return RS_OK;
}

/* Compute a record's bit map by the filters from..to. Return its length, 0 if the record was stored
 * before all of them. Evaluations that raise are added to `errors`. Allocates nothing. */
RS_UNUSED static int32_t rs_make_bit_map(const rs_bit_maps *maps, int32_t from, int32_t to,
                                         const uint8_t *properties, int32_t properties_nbytes,
                                         int64_t store_timestamp, const uint8_t **bit_map,
                                         int64_t *errors)
{
    uint8_t *made = maps->bytes + (size_t)maps->count * (size_t)maps->nbytes;
    int32_t nbytes = 0;
    for (int32_t i = from; i < to; i++) {
        const rs_group_filter *one = maps->filters + i;
        if (store_timestamp <= one->born_time) {
            continue;
        }
        if (nbytes == 0) {
            nbytes = maps->nbytes;
            memset(made, 0, (size_t)nbytes);
        }
        if (one->program == NULL) {
            continue;
        }
        const int verdict = rs_sql92_evaluate(one->program, properties, properties_nbytes);
        *errors += verdict == RS_SQL92_VERDICT_ERROR;
        for (int32_t at = 0; verdict == RS_SQL92_VERDICT_TRUE && at < nbytes; at++) {
            made[at] |= one->bits[at];
        }
    }
    *bit_map = made;
    return nbytes;
}

#endif
