"""Staged records: encoded from Arrow rows outside the store, appended later by its only writer.

A stage is a sequence of records whose physical offsets are their positions in it. Queue offsets are
0. A store time of 1 means that the born time is to be the store time, 0 that it was given.
``Appender.put_staged`` gives each record its place. A plain row takes the plain path. Any other,
also a refused one, goes through the rules of a put, which use a dict.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset, strlen

from rs_append_call cimport rs_set_template
from rs_appender cimport rs_appender, rs_put_record, rs_take_body_crc
from rs_bytes cimport rs_load_be64
from rs_copy cimport rs_copied_buffer
from rs_crc cimport rs_crc_import
from rs_encode cimport rs_encode_record, rs_needs_separator, rs_record_nbytes
from rs_formats cimport *
from rs_guard cimport rs_guard_import
from rs_hosts cimport rs_parse_host
from rs_put_arguments cimport rs_take_topic, rs_to_integer
from rs_put_offset_properties cimport rs_take_offset_rules
from rs_put_properties cimport rs_gather_properties
from rs_put_rules cimport rs_finish_record, rs_put_rules, rs_set_lengths
from rs_put_rules cimport rs_take_dialect
from rs_put_staged cimport rs_check_staged
from rs_put_plain cimport rs_level_of
from rs_put_text cimport *
from rs_record cimport rs_check, rs_store_timestamp_at

from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.status import PutMessageStatus

cdef extern from "rs_stage_columns.h" nogil:
    ctypedef struct ArrowSchema "struct ArrowSchema":
        const char *format
        const char *name
        int64_t n_children
        ArrowSchema **children
    ctypedef struct ArrowArray "struct ArrowArray":
        int64_t length
        int64_t offset
        ArrowArray **children
    enum:
        RS_COLUMN_NONE
        RS_COLUMN_TEXT
        RS_COLUMN_INT32
        RS_COLUMN_INT64
        RS_COLUMN_MAP
    ctypedef struct rs_given_column:
        int kind
        bint micro
    bint rs_column_is_null(const rs_given_column *column, int64_t row)
    int64_t rs_column_span(const rs_given_column *column, int64_t row, int64_t *start)
    const uint8_t *rs_column_text(const rs_given_column *column, int64_t row, int64_t *nbytes)
    int64_t rs_column_number(const rs_given_column *column, int64_t row)
    bint rs_column_take(rs_given_column *column, const ArrowSchema *schema, const ArrowArray *array,
                        int64_t first)

cdef extern from "rs_utf8.h" nogil:
    bint rs_is_plain(const uint8_t *p, int32_t n)

cdef extern from "rs_topic_table.h" nogil:
    ctypedef struct rs_topic_entry:
        int64_t next_offset
        int32_t queue_id
        int32_t topic_nbytes
        const uint8_t *topic
    ctypedef struct rs_topic_table:
        rs_topic_entry **slots
        size_t mask
    int rs_topic_table_init(rs_topic_table *table, uint64_t seed)
    void rs_topic_table_free(rs_topic_table *table)
    uint64_t rs_topic_hash(const rs_topic_table *table, const uint8_t *topic, int32_t n)
    uint64_t rs_topic_queue_hash(uint64_t topic_hash, int32_t queue_id)
    rs_topic_entry *rs_topic_put(rs_topic_table *table, uint64_t hash, const uint8_t *topic,
                                 int32_t topic_nbytes, int32_t queue_id)

cdef extern from "rs_scan.h" nogil:
    bint rs_is_complete(int status)

rs_guard_import()
rs_crc_import()

# Indexes of a batch's columns; the last two are those of the pairs in a map.
cdef enum:
    BODY
    TOPIC
    TAGS
    KEYS
    QUEUE_ID
    PROPERTIES
    FLAG
    BORN
    DELAY
    NAMES
    VALUES
    COLUMN_COUNT
    # With more properties than this, the rules compare the names.
    MANY_NAMES = 32

COLUMNS = ("body", "topic", "tags", "keys", "queueId", "properties", "flag", "bornTimestamp",
           "delayLevel")
_KINDS = (RS_COLUMN_TEXT, RS_COLUMN_TEXT, RS_COLUMN_TEXT, RS_COLUMN_TEXT, RS_COLUMN_INT32,
          RS_COLUMN_MAP, RS_COLUMN_INT32, RS_COLUMN_INT64, RS_COLUMN_INT32)


@cython.final
cdef class StageEncoder:
    """Encodes Arrow rows as staged records; see the stub. Keeps the GIL; one thread at a time."""

    cdef rs_appender _state  # only its seed is used, for hashes that are not read
    cdef bint _ready
    cdef rs_put_rules _rules
    cdef rs_put_record _template
    cdef rs_scratch _scratch
    cdef rs_scratch _out
    cdef rs_given_column[COLUMN_COUNT] _columns
    cdef frozenset _batch_topics
    cdef object _dialect
    cdef bytes _store_host
    cdef bytes _topic  # the option's, None without one
    cdef const uint8_t *_topic_text
    cdef int32_t _topic_nbytes
    cdef bytes _last_topic  # the last one that was checked
    cdef int64_t _queue_count, _capacity, _taken
    cdef readonly int64_t rows

    def __cinit__(self, *args, **kwargs):
        rs_scratch_init(&self._scratch)
        rs_scratch_init(&self._out)
        if rs_topic_table_init(<rs_topic_table *> &self._state.queues, 0) != 0:
            raise MemoryError()
        self._ready = True

    def __dealloc__(self):
        if self._ready:
            rs_topic_table_free(<rs_topic_table *> &self._state.queues)
            rs_scratch_free(&self._scratch)
            rs_scratch_free(&self._out)

    def __init__(self, *, topic=None, queues=4, store_host="127.0.0.1:10911",
                 broker_version="5.3.3", max_message_size=4194304, segment_nbytes=1073741824,
                 delay_ms=(), append_property_crc=False, capacity=4194304):
        if self._dialect is not None:
            raise RuntimeError("a StageEncoder cannot be set up twice")
        dialect = Dialect.for_version(broker_version, allow_newer=True)
        self._store_host = rs_parse_host(store_host)
        self._rules.property_crc = bool(append_property_crc)
        self._rules.max_message_size = rs_to_integer(
            "max_message_size", max_message_size, 0, INT32_MAX)
        self._rules.segment_nbytes = rs_to_integer(
            "segment_nbytes", segment_nbytes, formats.MIN_COMMIT_LOG_FILE_NBYTES,
            formats.MAX_COMMIT_LOG_FILE_NBYTES)
        self._rules.delay_level_count = <int32_t> min(<Py_ssize_t> len(delay_ms), INT32_MAX)
        self._queue_count = rs_to_integer("queues", queues, 1, INT32_MAX)
        self._capacity = rs_to_integer("capacity", capacity, 1, INT32_MAX)
        rs_take_offset_rules(&self._rules.late, dialect, False, False, 0, False)
        rs_take_dialect(&self._rules, dialect)
        self._batch_topics = frozenset()
        self._rules.late.batch_topics = <PyObject *> self._batch_topics
        rs_set_template(&self._template, self._rules.property_crc, self._store_host)
        self._template.fields.store_host = self._template.store_host
        self._template.fields.born_host = self._template.store_host
        self._template.fields.born_host_nbytes = self._template.fields.store_host_nbytes
        if topic is not None:
            rs_take_topic(topic, &self._topic_text, &self._topic_nbytes)
            self._topic = self._topic_text[:self._topic_nbytes]
            self._topic_text = <const uint8_t *> PyBytes_AS_STRING(self._topic)
        self._last_topic = b""
        self._dialect = dialect

    @property
    def position(self):
        """Bytes of the stage so far, including those not yet taken."""
        return self._taken + <int64_t> self._out.used

    @property
    def waiting_nbytes(self):
        """Bytes not yet taken."""
        return self._out.used

    def take(self):
        """Return the records encoded since the last ``take``."""
        cdef bytes content = PyBytes_FromStringAndSize(
            <char *> self._out.data, <Py_ssize_t> self._out.used)
        self._taken += <int64_t> self._out.used
        self._out.used = 0
        return content

    def encode(self, batch, row=0):
        """Encode the batch's rows from ``row`` on; return the row to continue from."""
        cdef const ArrowSchema *schema
        cdef const ArrowArray *array
        cdef int64_t at = rs_to_integer("row", row, 0, INT64_MAX)
        schema_capsule, array_capsule = batch.__arrow_c_array__()
        schema = <const ArrowSchema *> PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        array = <const ArrowArray *> PyCapsule_GetPointer(array_capsule, "arrow_array")
        self._take_columns(schema, array)
        while at < array.length and <int64_t> self._out.used < self._capacity:
            self._take_row(at)
            at += 1
        return at

    cdef int _take_columns(self, const ArrowSchema *schema, const ArrowArray *array) except -1:
        cdef int64_t i
        cdef Py_ssize_t place
        memset(self._columns, 0, sizeof(self._columns))
        for i in range(schema.n_children):
            name = schema.children[i].name.decode("utf-8", "replace")
            if name not in COLUMNS:
                raise ValueError(f"a sink takes no column {name!r}")
            place = COLUMNS.index(name)
            if not rs_column_take(&self._columns[place], schema.children[i], array.children[i],
                                  array.offset) or self._columns[place].kind != _KINDS[place]:
                raise TypeError(f"column {name} has the wrong Arrow type")
            if place == PROPERTIES:
                self._take_pairs(schema.children[i].children[0], array.children[i].children[0])
        if self._columns[BODY].kind == RS_COLUMN_NONE:
            raise ValueError("there is no column body")
        return 0

    cdef int _take_pairs(self, const ArrowSchema *schema, const ArrowArray *array) except -1:
        cdef int i
        for i in range(2):
            if not rs_column_take(&self._columns[NAMES + i], schema.children[i],
                                  array.children[i], array.offset) or (
                    self._columns[NAMES + i].kind != RS_COLUMN_TEXT):
                raise TypeError("column properties must be a map of string to string")
        return 0

    cdef int _take_row(self, int64_t row) except -1:
        cdef rs_put_record record = self._template
        cdef list holds
        self._scratch.used = 0
        if not self._plain(&record, row):
            holds = []
            record = self._template
            self._scratch.used = 0
            try:
                self._finish(&record, row, holds)
            except TypeError as error:
                raise TypeError(f"row {self.rows}: {error}") from None
            except ValueError as error:
                raise ValueError(f"row {self.rows}: {error}") from None
        self._write(&record)
        self.rows += 1
        return 0

    cdef bint _plain(self, rs_put_record *record, int64_t row) except -1:
        """Encode an ordinary row; return False if it needs the rules."""
        cdef const rs_given_column *columns = self._columns
        cdef int64_t number, nbytes
        if rs_column_is_null(&columns[BODY], row):
            return False
        if not rs_column_is_null(&columns[DELAY], row):
            if rs_column_number(&columns[DELAY], row) != 0:
                return False
        if not self._plain_topic(&record.fields.topic, &record.fields.topic_nbytes, row):
            return False
        number = self.rows % self._queue_count
        if not rs_column_is_null(&columns[QUEUE_ID], row):
            number = rs_column_number(&columns[QUEUE_ID], row)
        if number < 0:
            return False
        record.fields.queue_id = <int32_t> number
        self._take_numbers(record, row)
        if not self._plain_properties(row):
            return False
        record.fields.body = rs_column_text(&columns[BODY], row, &nbytes)
        rs_set_lengths(&self._rules, record, self._scratch.data, <int32_t> self._scratch.used,
                       nbytes)
        return record.status < 0

    cdef void _take_numbers(self, rs_put_record *record, int64_t row) noexcept:
        if not rs_column_is_null(&self._columns[FLAG], row):
            record.fields.flag = <int32_t> rs_column_number(&self._columns[FLAG], row)
        record.born_at_store = rs_column_is_null(&self._columns[BORN], row)
        record.fields.store_timestamp = record.born_at_store
        if not record.born_at_store:
            record.fields.born_timestamp = rs_column_number(&self._columns[BORN], row)

    cdef bint _plain_topic(self, const uint8_t **text, int32_t *nbytes, int64_t row) except -1:
        cdef const uint8_t *topic
        cdef int64_t length
        if self._topic is not None:
            text[0] = self._topic_text
            nbytes[0] = self._topic_nbytes
            return self._topic_nbytes <= RS_MAX_TOPIC_LENGTH
        if rs_column_is_null(&self._columns[TOPIC], row):
            return False
        topic = rs_column_text(&self._columns[TOPIC], row, &length)
        if length <= 0 or length > RS_MAX_TOPIC_LENGTH:
            return False
        if length != PyBytes_GET_SIZE(self._last_topic) or memcmp(
                topic, PyBytes_AS_STRING(self._last_topic), <size_t> length) != 0:
            if not rs_topic_is_allowed(topic, <size_t> length):
                return False
            self._last_topic = topic[:length]
        text[0] = topic
        nbytes[0] = <int32_t> length
        return True

    cdef bint _plain_properties(self, int64_t row) except -1:
        cdef const rs_given_column *columns = self._columns
        cdef const uint8_t *name
        cdef int64_t i, nbytes
        cdef int64_t count = 0
        cdef int64_t start = 0
        cdef int names = self._rules.names
        if not rs_column_is_null(&columns[PROPERTIES], row):
            count = rs_column_span(&columns[PROPERTIES], row, &start)
        if not rs_column_is_null(&columns[TAGS], row):
            names |= RS_NAME_TAGS
        if not rs_column_is_null(&columns[KEYS], row):
            names |= RS_NAME_KEYS
        for i in range(count):
            # The rows of the pairs count from the map's own first row.
            if rs_column_is_null(&columns[NAMES], start + i):
                return False
            name = rs_column_text(&columns[NAMES], start + i, &nbytes)
            names &= ~self._repeated(name, nbytes, start + i, row, names)
            if nbytes == 0 or self._needs_rules(name, nbytes, start + i, names):
                return False
            if not self._add_pair(name, nbytes, VALUES, start + i):
                return False
        if count > 1 and not self._differ(start, count):
            return False
        if names & RS_NAME_TAGS:
            name = <const uint8_t *> RS_PROPERTY_TAGS
            if not self._add_pair(name, <int64_t> strlen(RS_PROPERTY_TAGS), TAGS, row):
                return False
        if names & RS_NAME_KEYS:
            name = <const uint8_t *> RS_PROPERTY_KEYS
            if not self._add_pair(name, <int64_t> strlen(RS_PROPERTY_KEYS), KEYS, row):
                return False
        if not self._rules.trailing_separator and self._scratch.used > 0:
            self._scratch.used -= 1
        return self._scratch.used <= RS_MAX_PROPERTIES_NBYTES and rs_is_plain(
            self._scratch.data, <int32_t> self._scratch.used)

    cdef int _repeated(self, const uint8_t *name, int64_t name_nbytes, int64_t pair, int64_t row,
                       int names) noexcept:
        """Return which of the ``names`` a pair is, if the column of that name has its value."""
        cdef const uint8_t *value
        cdef const uint8_t *same
        cdef int64_t nbytes, same_nbytes
        cdef int kind = rs_name_kind(name, <size_t> name_nbytes) & names
        cdef int place = TAGS if kind & RS_NAME_TAGS else KEYS
        if kind & (RS_NAME_TAGS | RS_NAME_KEYS) == 0:
            return 0
        if (rs_column_is_null(&self._columns[VALUES], pair)
                or rs_column_is_null(&self._columns[place], row)):
            return 0
        value = rs_column_text(&self._columns[VALUES], pair, &nbytes)
        same = rs_column_text(&self._columns[place], row, &same_nbytes)
        if nbytes != same_nbytes or memcmp(value, same, <size_t> nbytes) != 0:
            return 0
        return kind

    cdef bint _needs_rules(self, const uint8_t *name, int64_t name_nbytes, int64_t row,
                           int names) noexcept:
        """Return whether one of the ``names`` is given, or a delay."""
        cdef const uint8_t *value
        cdef int64_t nbytes
        cdef int kind = rs_name_kind(name, <size_t> name_nbytes)
        if kind == RS_NAME_DELAY and not rs_column_is_null(&self._columns[VALUES], row):
            value = rs_column_text(&self._columns[VALUES], row, &nbytes)
            return rs_level_of(value, <size_t> nbytes) > 0
        return kind & names != 0

    cdef bint _add_pair(self, const uint8_t *name, int64_t name_nbytes, int place,
                        int64_t row) except -1:
        cdef const uint8_t *value
        cdef int64_t nbytes
        cdef int bad
        if rs_column_is_null(&self._columns[place], row):
            return False
        value = rs_column_text(&self._columns[place], row, &nbytes)
        bad = rs_scratch_pair(&self._scratch, name, <size_t> name_nbytes, value, <size_t> nbytes)
        if bad < 0:
            raise MemoryError()
        return not bad

    cdef bint _differ(self, int64_t start, int64_t count) noexcept:
        """Return whether no name occurs twice; with many names, leave that to the rules."""
        cdef const uint8_t *name
        cdef const uint8_t *other
        cdef int64_t i, j, nbytes, other_nbytes
        if count > MANY_NAMES:
            return False
        for i in range(1, count):
            name = rs_column_text(&self._columns[NAMES], start + i, &nbytes)
            for j in range(i):
                other = rs_column_text(&self._columns[NAMES], start + j, &other_nbytes)
                if nbytes == other_nbytes and memcmp(name, other, <size_t> nbytes) == 0:
                    return False
        return True

    # --- By the rules of a put ---

    cdef int _finish(self, rs_put_record *record, int64_t row, list holds) except -1:
        """Check and transform a row; raise if it is refused. ``holds`` keeps its texts."""
        cdef size_t start = 0
        cdef int64_t nbytes, number
        topic = tags = keys = None
        number = self.rows % self._queue_count
        if rs_column_is_null(&self._columns[BODY], row):
            raise ValueError("column body is null")
        if self._topic is not None:
            topic = self._topic.decode("ascii")
        elif rs_column_is_null(&self._columns[TOPIC], row):
            raise ValueError("column topic is null, and no topic was given for all rows")
        else:
            topic = self._text(TOPIC, row)
        holds.append(topic)
        rs_take_topic(topic, &record.fields.topic, &record.fields.topic_nbytes)
        if not rs_column_is_null(&self._columns[QUEUE_ID], row):
            number = rs_column_number(&self._columns[QUEUE_ID], row)
        record.fields.queue_id = <int32_t> rs_to_integer("queueId", number, 0, INT32_MAX)
        number = 0
        if not rs_column_is_null(&self._columns[DELAY], row):
            number = rs_column_number(&self._columns[DELAY], row)
        number = rs_to_integer("delayLevel", number, 0, INT32_MAX)
        self._take_numbers(record, row)
        if not rs_column_is_null(&self._columns[TAGS], row):
            tags = self._text(TAGS, row)
        if not rs_column_is_null(&self._columns[KEYS], row):
            keys = self._text(KEYS, row)
        given = self._properties(row)
        if given is not None:  # as a source gives them: in a column and among the properties
            tags = None if tags is not None and given.get(formats.PROPERTY_TAGS) == tags else tags
            keys = None if keys is not None and given.get(formats.PROPERTY_KEYS) == keys else keys
        pairs = rs_gather_properties(given, None, tags, keys, True, number, None)
        record.fields.body = rs_column_text(&self._columns[BODY], row, &nbytes)
        rs_finish_record(
            &self._rules, &self._state, record, &self._scratch, &start, nbytes, pairs, holds)
        if record.status >= 0:
            raise ValueError(
                f"the store refuses the message: {PutMessageStatus(record.status).name}")
        return 0

    cdef str _text(self, int place, int64_t row):
        cdef int64_t nbytes
        cdef const uint8_t *text = rs_column_text(&self._columns[place], row, &nbytes)
        name = COLUMNS[place] if place < NAMES else "properties"
        try:
            return text[:nbytes].decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"column {name} is not UTF-8") from None

    cdef dict _properties(self, int64_t row):
        cdef int64_t start, i, count
        cdef dict found = {}
        if rs_column_is_null(&self._columns[PROPERTIES], row):
            return None
        count = rs_column_span(&self._columns[PROPERTIES], row, &start)
        for i in range(start, start + count):
            name = None
            if not rs_column_is_null(&self._columns[NAMES], i):
                name = self._text(NAMES, i)
            found[name] = None
            if not rs_column_is_null(&self._columns[VALUES], i):
                found[name] = self._text(VALUES, i)
        return found

    cdef int _write(self, rs_put_record *record) except -1:
        """Append the record to the bytes not yet taken, without a whole-record CRC."""
        cdef uint8_t *place
        cdef int64_t nbytes
        record.fields.property_crc = record.fields.separator = 0
        nbytes = rs_record_nbytes(&record.fields)
        place = rs_scratch_room(&self._out, <size_t> nbytes)
        if place == NULL:
            raise MemoryError()
        record.fields.physical_offset = self._taken + <int64_t> self._out.used
        rs_take_body_crc(record)
        rs_encode_record(place, <int32_t> nbytes, &record.fields)
        self._out.used += <size_t> nbytes
        return 0


# --- Contents of a stage --------------------------------------------------------------------------


def tally(data, position, stop, base_offset, room):
    """Count the records that fit a segment, by queue."""
    cdef Py_buffer view
    cdef rs_parsed_record row
    cdef rs_topic_table table
    cdef rs_topic_entry *entry
    cdef const uint8_t *topic
    cdef int64_t at = rs_to_integer("position", position, 0, INT64_MAX)
    cdef int64_t end = rs_to_integer("stop", stop, at, INT64_MAX)
    cdef int64_t base = rs_to_integer("base_offset", base_offset, 0, INT64_MAX - end)
    cdef int64_t left = rs_to_integer("room", room, 0, INT64_MAX)
    cdef int64_t rows = 0
    cdef size_t slot
    cdef dict counts = {}
    if rs_topic_table_init(&table, 0) != 0:
        raise MemoryError()
    try:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if end > view.len:
                raise ValueError(f"stop {end} is past the {view.len} bytes of data")
            while at < end:
                rs_check_staged(<const uint8_t *> view.buf, at, end, base, 0, &row)
                if row.total_size + RS_BLANK_NBYTES > left:
                    break
                topic = <const uint8_t *> view.buf + at + row.topic_at
                entry = rs_topic_put(
                    &table, rs_topic_queue_hash(
                        rs_topic_hash(&table, topic, row.topic_nbytes), row.queue_id),
                    topic, row.topic_nbytes, row.queue_id)
                if entry == NULL:
                    raise MemoryError()
                entry.next_offset += 1
                left -= row.total_size
                at += row.total_size
                rows += 1
        finally:
            PyBuffer_Release(&view)
        for slot in range(table.mask + 1):
            entry = table.slots[slot]
            if entry != NULL:
                counts[(entry.topic[:entry.topic_nbytes].decode("utf-8", "replace"),
                        entry.queue_id)] = entry.next_offset
    finally:
        rs_topic_table_free(&table)
    return at, rows, counts


cdef bint parse_whole(bytes content, rs_parsed_record *row) except -1:
    """Parse exactly one record, whatever its offset."""
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(content)
    cdef int64_t nbytes = PyBytes_GET_SIZE(content)
    cdef int64_t offset
    if nbytes < RS_RECORD_MIN_NBYTES:
        return False
    offset = rs_load_be64(p + RS_RECORD_HEAD_PHYSICAL_OFFSET_AT)
    if offset < 0 or offset > INT64_MAX - nbytes:
        return False
    return rs_is_complete(rs_check(p, nbytes, offset, offset + nbytes, 0, row)) and (
        row.total_size == nbytes)


cdef bint same_properties(const uint8_t *staged, int32_t staged_nbytes, const uint8_t *stored,
                          int32_t stored_nbytes) noexcept:
    """Return whether the store wrote these properties; it may append the whole-record CRC."""
    cdef int32_t extra = stored_nbytes - staged_nbytes
    cdef int32_t separator = rs_needs_separator(staged, staged_nbytes)
    if extra < 0 or memcmp(staged, stored, <size_t> staged_nbytes) != 0:
        return False
    if extra == 0:
        return True
    return extra == RS_PROPERTY_CRC32_NBYTES + separator and memcmp(
        stored + staged_nbytes + separator, <const char *> RS_PROPERTY_CRC32,
        strlen(RS_PROPERTY_CRC32)) == 0


def matches(staged, stored):
    """Return whether a record of the log is this staged one."""
    cdef bytes ours = rs_copied_buffer(staged)
    cdef bytes theirs = rs_copied_buffer(stored)
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(ours)
    cdef const uint8_t *q = <const uint8_t *> PyBytes_AS_STRING(theirs)
    cdef rs_parsed_record a, b
    cdef size_t born_nbytes, store_nbytes, store_at
    if not parse_whole(ours, &a) or not parse_whole(theirs, &b):
        return False
    if (a.magic, a.body_crc, a.queue_id, a.flag, a.sys_flag, a.reconsume_times,
            a.prepared_transaction_offset, a.body_nbytes, a.topic_nbytes) != (
            b.magic, b.body_crc, b.queue_id, b.flag, b.sys_flag, b.reconsume_times,
            b.prepared_transaction_offset, b.body_nbytes, b.topic_nbytes):
        return False
    if b.born_timestamp != (b.store_timestamp if a.store_timestamp else a.born_timestamp):
        return False
    # Equal flags: the hosts have equal widths, so all following fields have equal positions.
    store_at = <size_t> rs_store_timestamp_at(a.sys_flag)
    born_nbytes = store_at - RS_RECORD_HEAD_NBYTES
    store_nbytes = <size_t> a.body_at - store_at - RS_RECORD_STORED_NBYTES
    return (memcmp(p + RS_RECORD_HEAD_NBYTES, q + RS_RECORD_HEAD_NBYTES, born_nbytes) == 0
            and memcmp(p + store_at + RS_RECORD_STORED_NBYTES,
                       q + store_at + RS_RECORD_STORED_NBYTES, store_nbytes) == 0
            and memcmp(p + a.body_at, q + b.body_at, <size_t> a.body_nbytes) == 0
            and memcmp(p + a.topic_at, q + b.topic_at, <size_t> a.topic_nbytes) == 0
            and same_properties(p + a.properties_at, a.properties_nbytes,
                                q + b.properties_at, b.properties_nbytes))
