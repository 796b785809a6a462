"""``BatchDecoder``: records of the log as Arrow record batches, by the Arrow PyCapsule interface.

Contract: ``arrow.pyi``. Windows are read inside ``rs_guarded``, because they may be mappings whose
file gets shorter.
"""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from rs_arguments cimport rs_get_bytes
from rs_crc cimport rs_crc_import
from rs_guard cimport rs_guard_import, rs_guarded
from rs_pass cimport rs_pass_begin, rs_pass_call
from rs_record_filter cimport rs_fill_filter, rs_free_filter, rs_record_filter, rs_zeros
from rs_status cimport RS_FAULT, RS_LIMIT, RS_OK

from rocketstore.record_filters import check_batch_limits, record_filters

cdef extern from "rs_arrow.h" nogil:
    enum:
        RS_CHUNK_ROWS
        RS_KIND_MAP

    ctypedef struct rs_arrow_schema:
        void (*release)(rs_arrow_schema*) noexcept

    ctypedef struct rs_arrow_array:
        void (*release)(rs_arrow_array*) noexcept

    ctypedef struct rs_arrow_stream:
        int (*get_schema)(rs_arrow_stream*, rs_arrow_schema*) noexcept
        int (*get_next)(rs_arrow_stream*, rs_arrow_array*) noexcept
        const char* (*get_last_error)(rs_arrow_stream*) noexcept
        void (*release)(rs_arrow_stream*) noexcept
        void* private_data

    ctypedef struct rs_column_type:
        int32_t kind

    ctypedef struct rs_column:
        pass

    ctypedef struct rs_pairs:
        pass

    ctypedef struct rs_weights:
        int32_t tags
        int32_t keys
        int32_t unique_key

    ctypedef struct rs_decoder:
        rs_pass_call call
        rs_record_filter filter
        rs_weights weights
        rs_column *columns
        rs_pairs *pairs
        int64_t batch_rows
        int64_t batch_nbytes
        int64_t rows
        int64_t errors
        int32_t column_count
        int32_t chunk_capacity
        int32_t wants_properties

    ctypedef struct rs_batch:
        int64_t rows

    const rs_column_type *rs_find_column_type(const char *name)
    void rs_weigh_column(rs_weights *weights, const rs_column_type *type)
    rs_column *rs_begin_columns(const rs_column_type *const *types, int32_t count,
                                int64_t batch_rows, const rs_column *last)
    void rs_free_columns(rs_column *columns, int32_t count)
    int rs_decode(void *argument)
    rs_batch *rs_take_batch(rs_decoder *decoder, const rs_column_type *const *types)
    void rs_leave_batch(rs_batch *batch)
    int rs_export_batch(rs_arrow_array *array, rs_batch *batch)
    int rs_export_types(rs_arrow_schema *schema, const rs_column_type *const *types, int32_t count)

rs_guard_import()
rs_crc_import()

cdef str ONE_THREAD = "a BatchDecoder serves one thread at a time"


# --- Capsules ---------------------------------------------------------------------------------

cdef void free_schema(object capsule) noexcept:
    cdef rs_arrow_schema* schema = <rs_arrow_schema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    PyMem_Free(schema)


cdef void free_array(object capsule) noexcept:
    cdef rs_arrow_array* array = <rs_arrow_array*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    PyMem_Free(array)


@cython.final
cdef class _ColumnTypes:
    """The columns of a decoder and its batches; exports them as a schema."""

    cdef const rs_column_type** _types
    cdef int32_t _count
    cdef readonly list names

    def __cinit__(self, list names):
        cdef bytes text
        cdef int32_t i
        self.names = names
        self._types = <const rs_column_type**>calloc(
            <size_t>max(len(names), 1), sizeof(rs_column_type*)
        )
        if self._types == NULL:
            raise MemoryError
        for i, name in enumerate(names):
            text = str(name).encode("utf-8", "replace")
            self._types[i] = rs_find_column_type(PyBytes_AS_STRING(text))
            if self._types[i] == NULL or b"\0" in text:
                raise ValueError(f"there is no column {name!r}")
        self._count = <int32_t>len(names)

    def __dealloc__(self):
        free(self._types)

    def __arrow_c_schema__(self):
        """Return the schema as a PyCapsule."""
        cdef rs_arrow_schema* schema = <rs_arrow_schema*>PyMem_Malloc(sizeof(rs_arrow_schema))
        if schema == NULL:
            raise MemoryError
        if rs_export_types(schema, self._types, self._count) != RS_OK:
            PyMem_Free(schema)
            raise MemoryError
        try:
            return PyCapsule_New(schema, "arrow_schema", free_schema)
        except BaseException:
            schema.release(schema)
            PyMem_Free(schema)
            raise

    def __repr__(self):
        return f"ColumnTypes({self.names!r})"


@cython.final
cdef class _ArrowBatch:
    """Finished rows; they can be exported as a record batch any number of times."""

    cdef rs_batch* _batch
    cdef _ColumnTypes _types

    def __init__(self):
        raise TypeError("batches come from BatchDecoder.take()")

    def __dealloc__(self):
        if self._batch != NULL:
            rs_leave_batch(self._batch)

    def __len__(self):
        return self._batch.rows

    @property
    def schema(self):
        """The schema of the batch."""
        return self._types

    def __arrow_c_schema__(self):
        """Return the schema as a PyCapsule."""
        return self._types.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        """Return schema and struct array as PyCapsules; a requested schema is ignored."""
        cdef rs_arrow_array* array
        schema = self._types.__arrow_c_schema__()
        array = <rs_arrow_array*>PyMem_Malloc(sizeof(rs_arrow_array))
        if array == NULL:
            raise MemoryError
        if rs_export_batch(array, self._batch) != RS_OK:
            PyMem_Free(array)
            raise MemoryError
        try:
            return schema, PyCapsule_New(array, "arrow_array", free_array)
        except BaseException:
            array.release(array)
            PyMem_Free(array)
            raise

    def __repr__(self):
        return f"<ArrowBatch of {len(self)} rows: {', '.join(self._types.names)}>"


# --- Streams ----------------------------------------------------------------------------------

@cython.final
cdef class _StreamState:
    """The rest of a stream, and the error that ended it."""

    cdef _ColumnTypes types
    cdef object batches
    cdef bytes error


cdef int stream_schema(rs_arrow_stream* stream, rs_arrow_schema* schema) noexcept with gil:
    cdef _StreamState state = <_StreamState>stream.private_data
    failed = rs_export_types(schema, state.types._types, state.types._count) != RS_OK
    return ENOMEM if failed else 0


cdef int stream_next(rs_arrow_stream* stream, rs_arrow_array* array) noexcept with gil:
    cdef _StreamState state = <_StreamState>stream.private_data
    cdef _ArrowBatch batch
    memset(array, 0, sizeof(rs_arrow_array))
    try:
        batch = next(state.batches, None)
        if batch is not None and rs_export_batch(array, batch._batch) != RS_OK:
            raise MemoryError
        return 0
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        state.error = text.encode("utf-8", "replace")
        return ENOMEM if isinstance(error, MemoryError) else EIO


cdef const char* stream_error(rs_arrow_stream* stream) noexcept with gil:
    cdef _StreamState state = <_StreamState>stream.private_data
    return NULL if state.error is None else PyBytes_AS_STRING(state.error)


cdef void release_stream(rs_arrow_stream* stream) noexcept with gil:
    cdef PyObject* state = <PyObject*>stream.private_data
    stream.private_data = NULL
    stream.release = NULL
    Py_DECREF(<object>state)


cdef void free_stream(object capsule) noexcept:
    cdef rs_arrow_stream* stream = <rs_arrow_stream*>PyCapsule_GetPointer(
        capsule, "arrow_array_stream"
    )
    if stream.release != NULL:
        stream.release(stream)
    PyMem_Free(stream)


def export_stream(_ColumnTypes schema not None, batches, /):
    """Return the batches of an iterator as a PyCapsule of a C stream."""
    cdef _StreamState state = _StreamState.__new__(_StreamState)
    cdef rs_arrow_stream* stream
    state.types = schema
    state.batches = iter(batches)
    stream = <rs_arrow_stream*>PyMem_Malloc(sizeof(rs_arrow_stream))
    if stream == NULL:
        raise MemoryError
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    stream.release = release_stream
    stream.private_data = <void*>state
    Py_INCREF(state)
    try:
        return PyCapsule_New(stream, "arrow_array_stream", free_stream)
    except BaseException:
        stream.release(stream)
        PyMem_Free(stream)
        raise


# --- BatchDecoder -----------------------------------------------------------------------------

@cython.final
cdef class BatchDecoder:
    """Fill record batches with records from windows of the log."""

    cdef rs_decoder* _decoder
    cdef _ColumnTypes _types
    cdef list _texts
    cdef object _filter
    cdef bint _busy

    def __cinit__(self, columns, *, topics=None, tags=None, keys=None, queue_ids=None, begin=None,
                  end=None, start_offsets=None, filter=None, batch_rows=8192,
                  batch_bytes=4194304):
        cdef rs_decoder* decoder
        cdef int32_t i
        cdef bint has_pairs = False
        self._types = _ColumnTypes(list(columns))
        check_batch_limits(batch_rows, batch_bytes)
        filters = record_filters(topics, tags, keys, queue_ids, begin, end, start_offsets, filter)
        self._filter = filters.filter
        decoder = self._decoder = <rs_decoder*>rs_zeros(1, sizeof(rs_decoder))
        decoder.batch_rows = batch_rows
        decoder.batch_nbytes = batch_bytes
        decoder.chunk_capacity = RS_CHUNK_ROWS
        decoder.column_count = self._types._count
        self._texts = []
        rs_fill_filter(&decoder.filter, filters, self._texts)
        for i in range(self._types._count):
            rs_weigh_column(&decoder.weights, self._types._types[i])
            has_pairs = has_pairs or self._types._types[i].kind >= RS_KIND_MAP
        decoder.wants_properties = (
            filters.tags is not None or filters.keys is not None
            or decoder.weights.tags + decoder.weights.keys + decoder.weights.unique_key > 0
        )
        if has_pairs:
            decoder.pairs = <rs_pairs*>rs_zeros(1, sizeof(rs_pairs))
        decoder.columns = rs_begin_columns(
            self._types._types, decoder.column_count, decoder.batch_rows, NULL
        )
        if decoder.columns == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._decoder != NULL:
            rs_free_columns(self._decoder.columns, self._decoder.column_count)
            rs_free_filter(&self._decoder.filter)
            free(self._decoder.pairs)
            free(self._decoder)

    def consume(self, window, int64_t position, int64_t stop, int64_t base_offset,
                int64_t segment_end, int64_t limit, int64_t flags, /):
        """Add the records from ``position`` on; return (status, position to continue from)."""
        cdef Py_buffer view
        cdef rs_pass_call* call = &self._decoder.call
        cdef int64_t errors = 0
        cdef int status
        memset(&view, 0, sizeof(view))
        rs_get_bytes(window, &view, False)
        if self._busy:
            PyBuffer_Release(&view)
            raise RuntimeError(ONE_THREAD)
        self._busy = True
        try:
            rs_pass_begin(call, &view, position, stop, base_offset, segment_end, limit, flags)
            with nogil:
                status = rs_guarded(rs_decode, self._decoder)
                if status == RS_FAULT:
                    # The fault is in one of the last rows; find the valid ones among them.
                    self._decoder.chunk_capacity = 1
                    status = rs_guarded(rs_decode, self._decoder)
                    self._decoder.chunk_capacity = RS_CHUNK_ROWS
            errors, self._decoder.errors = self._decoder.errors, 0
        finally:
            self._busy = False
            PyBuffer_Release(&view)
        if errors:
            self._filter.count_errors(errors)
        if status == RS_LIMIT:
            raise MemoryError
        return status, call.position

    @property
    def rows(self):
        """Rows not yet taken."""
        return self._decoder.rows

    @property
    def schema(self):
        """The schema of the batches."""
        return self._types

    def take(self):
        """Return the rows not yet taken as a record batch, and begin a new one."""
        cdef _ArrowBatch batch = _ArrowBatch.__new__(_ArrowBatch)
        if self._busy:
            raise RuntimeError(ONE_THREAD)
        batch._types = self._types
        batch._batch = rs_take_batch(self._decoder, self._types._types)
        if batch._batch == NULL:
            raise MemoryError
        return batch
