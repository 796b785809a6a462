/* Requests to callgrind from the counted process. Outside valgrind each is a no-operation. */
#include <valgrind/callgrind.h>
#include <valgrind/valgrind.h>

int rs_is_counted(void) { return (int)RUNNING_ON_VALGRIND; }

void rs_instrument(void) { CALLGRIND_START_INSTRUMENTATION; }

void rs_rest(void) { CALLGRIND_STOP_INSTRUMENTATION; }

void rs_start(void)
{
    CALLGRIND_ZERO_STATS;
    CALLGRIND_TOGGLE_COLLECT;
}

void rs_stop(const char *name)
{
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS_AT(name);
}
