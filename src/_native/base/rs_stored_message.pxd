# StoredMessages for modules that select records.
from libc.stdint cimport int64_t

cdef extern from "rs_stored_message.h":
    const char *RS_STORED_MESSAGE_CAPSULE
    int rs_stored_message_import() except -1
    # ValueError: there can be no record.
    object rs_make_stored_message(object buffer, int64_t position, int64_t base_offset,
                                  int64_t segment_end)
