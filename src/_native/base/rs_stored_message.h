/* Makes a rocketstore._native.message.StoredMessage from another module, without a Python call. */
#ifndef RS_STORED_MESSAGE_H
#define RS_STORED_MESSAGE_H
#include <Python.h>
#include <string.h>
#include "rs_bytes.h"
#include "rs_capsule.h"

#define RS_STORED_MESSAGE_MODULE "rocketstore._native.message"
#define RS_STORED_MESSAGE_CAPSULE "rocketstore._native.message._api"

/* As the constructor; NULL with its exception. */
typedef PyObject *(*rs_stored_message_maker)(PyObject *buffer, int64_t position,
                                             int64_t base_offset, int64_t segment_end);

static rs_stored_message_maker rs_make_stored_message = NULL;

/* Fetch the maker; every module that uses it calls this at import. Return 0, or -1 with an
 * exception. */
RS_UNUSED static int rs_stored_message_import(void)
{
    void *pointer = rs_capsule_pointer(RS_STORED_MESSAGE_MODULE, RS_STORED_MESSAGE_CAPSULE);
    if (pointer == NULL) {
        return -1;
    }
    memcpy(&rs_make_stored_message, &pointer, sizeof rs_make_stored_message);
    return 0;
}

#endif
