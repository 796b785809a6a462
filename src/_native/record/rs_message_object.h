/* The C layout of rocketstore._native.message.Message, for modules that read messages without
 * attribute access. Only for objects whose type is exactly Message: a StoredMessage leaves these
 * fields empty. The references are borrowed and never NULL; properties is a dict. message.pyx
 * checks the layout at import. */
#ifndef RS_MESSAGE_OBJECT_H
#define RS_MESSAGE_OBJECT_H
#include <Python.h>
#include <stdint.h>

typedef struct {
    PyObject_HEAD
    PyObject *topic;      /* str */
    PyObject *body;       /* bytes */
    PyObject *born_host;  /* str or None */
    PyObject *store_host; /* str or None */
    PyObject *properties; /* dict */
    int64_t queue_id;
    int64_t flag;
    int64_t sys_flag;
    int64_t reconsume_times;
    int64_t prepared_transaction_offset;
    int64_t born_timestamp; /* only when has_born_timestamp */
    int has_born_timestamp;
} rs_message_object;

#endif
