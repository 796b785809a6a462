/* Calls that survive a SIGBUS from reading a mapping whose file was shortened.
 *
 * The process has one handler, and one jump target per thread, in the module
 * rocketstore._native.guard; other modules reach them through its capsule. A guarded function may
 * be left at any instruction that reads or writes mapped memory. So it holds no lock, owns no
 * memory and touches no Python object; the caller handles its half-done stores. */
#ifndef RS_GUARD_H
#define RS_GUARD_H
#include <Python.h>
#include "rs_bytes.h"
#include "rs_capsule.h"
#include "rs_status.h"

#define RS_GUARD_MODULE "rocketstore._native.guard"
#define RS_GUARD_CAPSULE "rocketstore._native.guard._api"

typedef int (*rs_guarded_function)(void *argument);
typedef int (*rs_guard_caller)(rs_guarded_function function, void *argument);

static rs_guard_caller rs_guard_call = NULL;

/* Fetch the guard; every module that uses rs_guarded calls it at import. Return 0, or -1 with an
 * exception. */
RS_UNUSED static int rs_guard_import(void)
{
    void *pointer = rs_capsule_pointer(RS_GUARD_MODULE, RS_GUARD_CAPSULE);
    if (pointer == NULL) {
        return -1;
    }
    memcpy(&rs_guard_call, &pointer, sizeof rs_guard_call);
    return 0;
}

/* Return the function's result, or RS_FAULT if memory it touched is gone. May be nested. */
static inline int rs_guarded(rs_guarded_function function, void *argument)
{
    return rs_guard_call(function, argument);
}

#endif
