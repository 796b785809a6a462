/* Record batches through the Arrow C data interface.
 *
 * Batches have a reference count: every exported array, and every child that a consumer moves out
 * of one, holds a reference. Any thread may release them, without the GIL. */
#ifndef RS_ARROW_H
#define RS_ARROW_H
#include <stdlib.h>
#include "rs_arrow_interface.h"
#include "rs_batch.h"

#define RS_ARROW_NULLABLE 2

typedef struct ArrowSchema rs_arrow_schema;
typedef struct ArrowArray rs_arrow_array;
typedef struct ArrowArrayStream rs_arrow_stream;

/* Finished rows. */
typedef struct {
    int64_t holders;
    int64_t rows;
    rs_column *columns;
    int32_t column_count;
} rs_batch;

static inline void rs_hold_batch(rs_batch *batch)
{
#if defined(_MSC_VER) && !defined(__clang__)
    _InterlockedIncrement64(&batch->holders);
#else
    __atomic_fetch_add(&batch->holders, 1, __ATOMIC_RELAXED);
#endif
}

RS_UNUSED static void rs_leave_batch(rs_batch *batch)
{
#if defined(_MSC_VER) && !defined(__clang__)
    const int64_t left = _InterlockedDecrement64(&batch->holders);
#else
    const int64_t left = __atomic_sub_fetch(&batch->holders, 1, __ATOMIC_ACQ_REL);
#endif
    if (left == 0) {
        rs_free_columns(batch->columns, batch->column_count);
        free(batch);
    }
}

/* Move the waiting rows into a batch and give the decoder new columns; NULL if out of memory, with
 * nothing changed. */
RS_UNUSED static rs_batch *rs_take_batch(rs_decoder *decoder, const rs_column_type *const *types)
{
    rs_batch *batch = (rs_batch *)malloc(sizeof *batch);
    if (batch == NULL) {
        return NULL;
    }
    for (int32_t i = 0; i < decoder->column_count; i++) {
        rs_rewind_column(&decoder->columns[i], decoder->rows);
    }
    rs_column *columns = rs_begin_columns(types, decoder->column_count, decoder->batch_rows,
                                          decoder->columns);
    if (columns == NULL) {
        free(batch);
        return NULL;
    }
    batch->holders = 1;
    batch->rows = decoder->rows;
    batch->columns = decoder->columns;
    batch->column_count = decoder->column_count;
    decoder->columns = columns;
    decoder->rows = decoder->nbytes = 0;
    return batch;
}

/* --- Arrays --- */

typedef struct {
    rs_batch *batch;
    const void *buffers[3];
    rs_arrow_array *children;
    rs_arrow_array **pointers;
} rs_array_node;

RS_UNUSED static void rs_release_array(rs_arrow_array *array)
{
    rs_array_node *node = (rs_array_node *)array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        if (node->children[i].release != NULL) {
            node->children[i].release(&node->children[i]);
        }
    }
    rs_leave_batch(node->batch);
    free(node->children);
    free(node->pointers);
    free(node);
    array->release = NULL;
}

/* Fill one array, with room for children that do not exist yet. */
RS_UNUSED static int rs_begin_array(rs_arrow_array *array, rs_batch *batch, int64_t length,
                                    int64_t buffer_count, int64_t child_count)
{
    memset(array, 0, sizeof *array);
    rs_array_node *node = (rs_array_node *)calloc(1, sizeof *node);
    if (node == NULL) {
        return RS_LIMIT;
    }
    if (child_count > 0) {
        node->children = (rs_arrow_array *)calloc((size_t)child_count, sizeof *node->children);
        node->pointers = (rs_arrow_array **)calloc((size_t)child_count, sizeof *node->pointers);
        if (node->children == NULL || node->pointers == NULL) {
            free(node->children);
            free(node->pointers);
            free(node);
            return RS_LIMIT;
        }
    }
    for (int64_t i = 0; i < child_count; i++) {
        node->pointers[i] = &node->children[i];
    }
    node->batch = batch;
    rs_hold_batch(batch);
    array->length = length;
    array->n_buffers = buffer_count;
    array->n_children = child_count;
    array->buffers = node->buffers;
    array->children = node->pointers;
    array->private_data = node;
    array->release = rs_release_array;
    return RS_OK;
}

static inline rs_array_node *rs_node_of(const rs_arrow_array *array)
{
    return (rs_array_node *)array->private_data;
}

RS_UNUSED static int rs_export_bytes(rs_arrow_array *array, rs_batch *batch, int64_t length,
                                     const uint8_t *offsets, const uint8_t *data)
{
    if (rs_begin_array(array, batch, length, 3, 0) != RS_OK) {
        return RS_LIMIT;
    }
    rs_node_of(array)->buffers[1] = offsets;
    rs_node_of(array)->buffers[2] = data;
    return RS_OK;
}

RS_UNUSED static int rs_export_pairs(rs_arrow_array *array, rs_batch *batch,
                                     const rs_column *column)
{
    const int64_t count = rs_get_int32(column->values, batch->rows);
    if (rs_begin_array(array, batch, batch->rows, 2, 1) != RS_OK) {
        return RS_LIMIT;
    }
    rs_node_of(array)->buffers[1] = column->values;
    rs_arrow_array *entries = &rs_node_of(array)->children[0];
    if (rs_begin_array(entries, batch, count, 1, 2) != RS_OK) {
        return RS_LIMIT;
    }
    rs_arrow_array *children = rs_node_of(entries)->children;
    int status = rs_export_bytes(&children[0], batch, count, column->name_offsets.data,
                                 column->bytes.data);
    status |= rs_export_bytes(&children[1], batch, count, column->content_offsets.data,
                              column->contents.data);
    return status == RS_OK ? RS_OK : RS_LIMIT;
}

RS_UNUSED static int rs_export_column(rs_arrow_array *array, rs_batch *batch,
                                      const rs_column *column)
{
    if (rs_has_pairs(column)) {
        return rs_export_pairs(array, batch, column);
    }
    if (rs_has_offsets(column)) {
        if (rs_export_bytes(array, batch, batch->rows, column->values, column->bytes.data)
            != RS_OK) {
            return RS_LIMIT;
        }
        array->null_count = rs_null_count(column, batch->rows);
        rs_node_of(array)->buffers[0] = array->null_count > 0 ? column->validity : NULL;
        return RS_OK;
    }
    if (rs_begin_array(array, batch, batch->rows, 2, 0) != RS_OK) {
        return RS_LIMIT;
    }
    rs_node_of(array)->buffers[1] = column->values;
    return RS_OK;
}

/* The batch as a struct array; RS_LIMIT if out of memory, with nothing to release. */
RS_UNUSED static int rs_export_batch(rs_arrow_array *array, rs_batch *batch)
{
    if (rs_begin_array(array, batch, batch->rows, 1, batch->column_count) != RS_OK) {
        return RS_LIMIT;
    }
    for (int32_t i = 0; i < batch->column_count; i++) {
        if (rs_export_column(array->children[i], batch, &batch->columns[i]) != RS_OK) {
            rs_release_array(array);
            return RS_LIMIT;
        }
    }
    return RS_OK;
}

/* --- Schemas --- */

RS_UNUSED static void rs_release_schema(rs_arrow_schema *schema)
{
    rs_arrow_schema *children = (rs_arrow_schema *)schema->private_data;
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (children[i].release != NULL) {
            children[i].release(&children[i]);
        }
    }
    free(children);
    free(schema->children);
    schema->release = NULL;
}

/* Names and formats are constants. */
RS_UNUSED static int rs_begin_schema(rs_arrow_schema *schema, const char *name,
                                     const char *format, int64_t flags, int64_t child_count)
{
    memset(schema, 0, sizeof *schema);
    rs_arrow_schema *children = NULL, **pointers = NULL;
    if (child_count > 0) {
        children = (rs_arrow_schema *)calloc((size_t)child_count, sizeof *children);
        pointers = (rs_arrow_schema **)calloc((size_t)child_count, sizeof *pointers);
        if (children == NULL || pointers == NULL) {
            free(children);
            free(pointers);
            return RS_LIMIT;
        }
        for (int64_t i = 0; i < child_count; i++) {
            pointers[i] = &children[i];
        }
    }
    schema->name = name;
    schema->format = format;
    schema->flags = flags;
    schema->n_children = child_count;
    schema->children = pointers;
    schema->private_data = children;
    schema->release = rs_release_schema;
    return RS_OK;
}

RS_UNUSED static int rs_export_type(rs_arrow_schema *schema, const rs_column_type *type)
{
    const int map = type->kind == RS_KIND_MAP;
    if (type->kind < RS_KIND_MAP) {
        return rs_begin_schema(schema, type->name, type->format, RS_ARROW_NULLABLE, 0);
    }
    if (rs_begin_schema(schema, type->name, type->format, RS_ARROW_NULLABLE, 1) != RS_OK
        || rs_begin_schema(schema->children[0], map ? "entries" : "element", "+s",
                           map ? 0 : RS_ARROW_NULLABLE, 2)
               != RS_OK) {
        return RS_LIMIT;
    }
    rs_arrow_schema **pair = schema->children[0]->children;
    if (rs_begin_schema(pair[0], "key", "u", map ? 0 : RS_ARROW_NULLABLE, 0) != RS_OK) {
        return RS_LIMIT;
    }
    return rs_begin_schema(pair[1], "value", map ? "u" : "z", RS_ARROW_NULLABLE, 0);
}

/* The columns as a struct; RS_LIMIT if out of memory, with nothing to release. */
RS_UNUSED static int rs_export_types(rs_arrow_schema *schema, const rs_column_type *const *types,
                                     int32_t count)
{
    if (rs_begin_schema(schema, "", "+s", 0, count) != RS_OK) {
        return RS_LIMIT;
    }
    for (int32_t i = 0; i < count; i++) {
        if (rs_export_type(schema->children[i], types[i]) != RS_OK) {
            rs_release_schema(schema);
            return RS_LIMIT;
        }
    }
    return RS_OK;
}

#endif
