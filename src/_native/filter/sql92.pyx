"""Compiled SQL92 filters. Contract: ``sql92.pyi``."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from rs_copy cimport rs_copied_buffer
from rs_formats cimport RS_MAX_PROPERTIES_NBYTES
from rs_guard cimport rs_guard_import
from rs_sql92 cimport *
from rs_sql92_program cimport RS_SQL92_VERDICT_ERROR, RS_SQL92_VERDICT_TRUE

rs_guard_import()

cdef enum:
    # Values of so many names need no memory of their own.
    FEW_NAMES = 16


cdef str text_of(const uint8_t* p, int32_t nbytes):
    return PyUnicode_DecodeUTF8(<const char*>p, nbytes, NULL)


@cython.final
cdef class Program:
    """A compiled filter; see ``sql92.pyi``."""

    cdef rs_sql92_filter* _filter
    cdef readonly tuple names
    cdef int64_t _errors

    def __cinit__(self, program, /):
        cdef bytes data = bytes(program)
        cdef rs_sql92_filter* made = NULL
        rs_compile(&made, data)
        self._filter = made
        self.names = tuple([
            text_of(made.program.pool + made.program.names[number].at,
                    made.program.names[number].nbytes)
            for number in range(made.program.name_count)
        ])

    def __dealloc__(self):
        rs_sql92_free(self._filter)

    @property
    def errors(self):
        """ERROR verdicts so far."""
        return self._errors

    def count_errors(self, int64_t count, /):
        """Add to ``errors``."""
        if count < 0:
            raise ValueError("count is negative")
        self._errors += count

    cdef int _collect(self, object properties, rs_sql92_value* values, list kept) except -1:
        """Set the values of the names; ``kept`` gets the objects that hold them."""
        cdef Py_ssize_t nbytes = 0, number = 0
        cdef const char* text
        cdef PyObject* found
        for name in self.names:
            if PyDict_CheckExact(properties):
                found = PyDict_GetItemWithError(properties, name)
                value = None if found is NULL else <object>found
            else:
                value = properties.get(name)
            values[number].p = NULL
            values[number].nbytes = 0
            if value is not None:
                if not PyUnicode_Check(value):
                    raise TypeError(
                        f"property {name} must be str, not {type(value).__name__}")
                try:
                    text = PyUnicode_AsUTF8AndSize(value, &nbytes)
                except UnicodeEncodeError:
                    value = value.encode("utf-8", "replace")
                    text = PyBytes_AS_STRING(value)
                    nbytes = len(value)
                if nbytes > INT32_MAX:
                    raise ValueError(f"property {name} has {nbytes} bytes")
                kept.append(value)
                values[number].p = <const uint8_t*>text
                values[number].nbytes = <int32_t>nbytes
            number += 1
        return 0

    cdef int _judge(self, object properties, int32_t* at) except -1:
        """Return the verdict for a mapping; set ``at`` to the instruction of an ERROR."""
        cdef rs_sql92_value[FEW_NAMES] few
        cdef rs_sql92_value* values = few
        cdef rs_sql92_run run
        cdef list kept = []
        cdef int verdict
        if self._filter.program.name_count > FEW_NAMES:
            values = <rs_sql92_value*>PyMem_Malloc(
                <size_t>self._filter.program.name_count * sizeof(rs_sql92_value))
            if values is NULL:
                raise MemoryError
        try:
            self._collect(properties, values, kept)
            run.program = &self._filter.program
            run.values = values
            run.stack = self._filter.stack
            run.mended = NULL
            verdict = rs_sql92_judge(&run)
            at[0] = run.at
            return verdict
        finally:
            if values is not few:
                PyMem_Free(values)

    def evaluate(self, properties, /):
        """Return the verdict for a mapping."""
        cdef int32_t at
        cdef int verdict = self._judge(properties, &at)
        self._errors += verdict == RS_SQL92_VERDICT_ERROR
        return verdict

    def matches(self, properties, /):
        """Return whether the verdict is TRUE."""
        cdef int32_t at
        cdef int verdict = self._judge(properties, &at)
        self._errors += verdict == RS_SQL92_VERDICT_ERROR
        return verdict == RS_SQL92_VERDICT_TRUE

    def fault(self, properties, /):
        """Return the number of the instruction that raises, or -1."""
        cdef int32_t at
        return at if self._judge(properties, &at) == RS_SQL92_VERDICT_ERROR else -1

    def evaluate_stored(self, properties, /):
        """Return the verdict for stored properties."""
        cdef bytes data = rs_copied_buffer(properties)
        cdef int verdict
        if len(data) > RS_MAX_PROPERTIES_NBYTES:
            raise ValueError(
                f"the properties have {len(data)} bytes, more than {RS_MAX_PROPERTIES_NBYTES}")
        verdict = rs_sql92_evaluate(
            self._filter, <const uint8_t*>PyBytes_AS_STRING(data), <int32_t>len(data))
        self._errors += verdict == RS_SQL92_VERDICT_ERROR
        return verdict
