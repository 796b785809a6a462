/* Syncs a segment while it is written, without the GIL. */
#ifndef RS_FOLLOW_H
#define RS_FOLLOW_H
#include "rs_appender.h"
#include "rs_mapping.h"
#include "rs_offset_waiters.h"

/* Why rs_follow returned. */
enum {
    RS_FOLLOW_IDLE,      /* no ring in time */
    RS_FOLLOW_RANG,      /* there was a ring, but nothing to sync */
    RS_FOLLOW_SYNCED,    /* rs_waiters_ask_back was called */
    RS_FOLLOW_HELD,      /* another thread wants to sync */
    RS_FOLLOW_ELSEWHERE, /* the segment is full or no longer written */
    RS_FOLLOW_UNNAMED,   /* a file lost its name; the sync is not stated */
    RS_FOLLOW_FAILED,    /* `error` says why; final */
};

/* A file that must keep its name. */
typedef struct {
    const char *path;
    uint64_t device, inode;
    int64_t nbytes;
} rs_named_file;

/* The segment that is followed, and how far it is on disk. */
typedef struct {
    void *base;
    int64_t base_offset, nbytes;
    int fd; /* -1: none */
    const rs_named_file *names;
    int64_t name_count;
    int64_t flushed, timestamp;
    int error;
} rs_followed;

#ifdef _WIN32
static inline int rs_confirm_sync(int fd, int64_t position) { (void)fd, (void)position; return 0; }
#else
/* A file system that is shut down during a sync may report success and never write its journal.
 * Every later read fails, so a read confirms the sync. Return 0, or the errno. */
static inline int rs_confirm_sync(int fd, int64_t position)
{
    char byte;
    ssize_t count;
    if (fd < 0)
        return 0;
    do {
        count = pread(fd, &byte, 1, (off_t)position);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? errno : 0;
}
#endif

/* Sync up to `end` and state it. Return 0, RS_FOLLOW_SYNCED, or why it is not stated. */
static inline int rs_follow_sync(rs_offset_waiters *all, rs_followed *log, int64_t end)
{
    const int64_t start = log->flushed - log->base_offset;
    do {
        log->error = rs_sync(log->base, start, end - log->flushed);
    } while (log->error == EINTR);
    if (log->error == 0)
        log->error = rs_confirm_sync(log->fd, start);
    if (log->error != 0)
        return RS_FOLLOW_FAILED;
    for (int64_t i = 0; i < log->name_count; i++) {
        const rs_named_file *file = &log->names[i];
        if (!rs_is_named(file->path, file->device, file->inode, file->nbytes))
            return RS_FOLLOW_UNNAMED;
    }
    log->flushed = end;
    return rs_waiters_reach(all, end, 0) ? RS_FOLLOW_SYNCED : 0;
}

/* Sync what was put, and listen when there is nothing to sync, again and again; each pause lasts
 * `pause_ns` at most. */
static inline int rs_follow(rs_offset_waiters *all, const rs_appender *appender, rs_followed *log,
                            int64_t pause_ns)
{
    int has_listened = 0, rang = 0;
    while (!rs_waiters_is_held(all)) {
        /* Read the time first, so that it is never later than the synced records; and the segment
         * last, because the end may be one of the next. */
        const int64_t timestamp = rs_load_acquire64(&appender->last_store_timestamp);
        const int64_t end = rs_load_acquire64(&appender->write_offset);
        if (rs_load_acquire64(&appender->base_offset) != log->base_offset
            || end >= log->base_offset + log->nbytes)
            return RS_FOLLOW_ELSEWHERE;
        if (end > log->flushed) {
            const int reason = rs_follow_sync(all, log, end);
            if (reason == 0 || reason == RS_FOLLOW_SYNCED)
                log->timestamp = timestamp;
            if (reason != 0)
                return reason;
            has_listened = 0;
        } else if (has_listened) {
            return rang ? RS_FOLLOW_RANG : RS_FOLLOW_IDLE;
        } else {
            rang = rs_waiters_listen(all, rs_monotonic_ns() + pause_ns);
            has_listened = 1;
        }
    }
    return RS_FOLLOW_HELD;
}

#endif
