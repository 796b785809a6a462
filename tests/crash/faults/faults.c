/* Lets file operations below one folder fail on demand; loaded in front of the C library.
 *
 * Every operation on a file or directory below the watched folder gets a number. The armed one
 * fails with the armed errno (once, or it and all later ones of its kind), or writes less than it
 * was given. Successful and failed syncs are kept with the bytes they cover.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ONCE, STICKY, SHORT };
enum { PATH_NBYTES = 512, MOST_POINTS = 8192, MOST_MAPS = 4096, MOST_SYNCS = 65536 };

struct sync_range {
    uint64_t inode;
    int64_t start, stop;
    int32_t failed;
    int32_t is_directory;
};
struct map_range {
    char *base;
    size_t nbytes;
    int64_t offset;
    uint64_t inode;
    char path[PATH_NBYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char watched[PATH_NBYTES];
static size_t watched_nbytes;
static int is_watching;
static long count, armed_number, fired_count;
static int armed_errno, armed_mode;
static char armed_kind[16];
static char points[MOST_POINTS][PATH_NBYTES];
static char fired[PATH_NBYTES];
static struct map_range maps[MOST_MAPS];
static struct sync_range syncs[MOST_SYNCS];
static long sync_count;

#define REAL(name) ((__typeof__(&name))real_symbol(#name))
static void *real_symbol(const char *name) { return dlsym(RTLD_NEXT, name); }

/* --- for the tests --------------------------------------------------------------------------- */

void faults_watch(const char *folder)
{
    snprintf(watched, sizeof watched, "%s", folder);
    watched_nbytes = strlen(watched);
    count = fired_count = sync_count = 0;
    armed_number = -1;
    fired[0] = armed_kind[0] = '\0';
    is_watching = 1;
}
void faults_pause(int paused) { is_watching = !paused; }
void faults_arm(long number, int error, int mode)
{
    armed_number = number;
    armed_errno = error;
    armed_mode = mode;
}
void faults_disarm(void)
{
    armed_number = -1;
    armed_kind[0] = '\0';
}
long faults_count(void) { return count; }
long faults_fired_count(void) { return fired_count; }
const char *faults_fired(void) { return fired; }
const char *faults_point(long number) { return points[number]; }
long faults_sync_count(void) { return sync_count; }
const struct sync_range *faults_syncs(void) { return syncs; }

/* --- which operations are meant -------------------------------------------------------------- */

static int is_below(const char *path)
{
    return strncmp(path, watched, watched_nbytes) == 0 &&
           (path[watched_nbytes] == '/' || path[watched_nbytes] == '\0');
}

/* The path of a descriptor below the watched folder; 0: it is another. */
static int path_of(int fd, char *path)
{
    char link[64];
    ssize_t nbytes;
    if (!is_watching || fd < 0) {
        return 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    nbytes = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_NBYTES - 1);
    if (nbytes <= 0) {
        return 0;
    }
    path[nbytes] = '\0';
    return is_below(path);
}

/* Number an operation. Returns 0, the errno it shall fail with, or -1: shall write less. */
static int fault(const char *kind, const char *path, int can_be_short)
{
    int error = 0, is_armed;
    pthread_mutex_lock(&lock);
    if (count < MOST_POINTS) {
        snprintf(points[count], PATH_NBYTES, "%s %.490s", kind, path + watched_nbytes);
    }
    is_armed = count == armed_number;
    if (is_armed && armed_mode == STICKY) {
        snprintf(armed_kind, sizeof armed_kind, "%s", kind);
    }
    if (is_armed || (armed_kind[0] && strcmp(armed_kind, kind) == 0)) {
        error = armed_mode != SHORT ? armed_errno : can_be_short ? -1 : 0;
    }
    if (error && !fired_count++) {
        snprintf(fired, sizeof fired, "%s %.490s", kind, path + watched_nbytes);
    }
    count++;
    pthread_mutex_unlock(&lock);
    return error;
}

#define FAIL_IF_ARMED(kind, path, failed)                                                          \
    do {                                                                                           \
        const int error_ = fault(kind, path, 0);                                                   \
        if (error_) {                                                                              \
            errno = error_;                                                                        \
            return failed;                                                                         \
        }                                                                                          \
    } while (0)

/* --- operations by name ---------------------------------------------------------------------- */

static int open_named(int folder, const char *path, int flags, mode_t mode)
{
    if (is_watching && is_below(path)) {
        FAIL_IF_ARMED(flags & O_CREAT ? "create" : "open", path, -1);
    }
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define OPEN_BODY(folder)                                                                          \
    mode_t mode = 0;                                                                               \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                           \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = (mode_t)va_arg(rest, int);                                                          \
        va_end(rest);                                                                              \
    }                                                                                              \
    return open_named(folder, path, flags, mode)

int open(const char *path, int flags, ...) { OPEN_BODY(AT_FDCWD); }
int open64(const char *path, int flags, ...) { OPEN_BODY(AT_FDCWD); }
int openat(int folder, const char *path, int flags, ...) { OPEN_BODY(folder); }
int openat64(int folder, const char *path, int flags, ...) { OPEN_BODY(folder); }

/* Which of two calls of a kind an interpreter takes is its own affair. */
#define ON_PATH(kind, name, path, call)                                                            \
    do {                                                                                           \
        if (is_watching && is_below(path)) {                                                       \
            FAIL_IF_ARMED(kind, path, -1);                                                         \
        }                                                                                          \
        return REAL(name) call;                                                                    \
    } while (0)

int unlink(const char *path) { ON_PATH("unlink", unlink, path, (path)); }
int unlinkat(int folder, const char *path, int flags)
{
    ON_PATH("unlink", unlinkat, path, (folder, path, flags));
}
int rename(const char *from, const char *to) { ON_PATH("rename", rename, to, (from, to)); }
int renameat(int a, const char *from, int b, const char *to)
{
    ON_PATH("rename", renameat, to, (a, from, b, to));
}
int link(const char *from, const char *to) { ON_PATH("link", link, to, (from, to)); }
int linkat(int a, const char *from, int b, const char *to, int flags)
{
    ON_PATH("link", linkat, to, (a, from, b, to, flags));
}
int mkdir(const char *path, mode_t mode) { ON_PATH("mkdir", mkdir, path, (path, mode)); }

/* --- operations on descriptors --------------------------------------------------------------- */

#define ON_FD(name, fd, call)                                                                      \
    do {                                                                                           \
        char path[PATH_NBYTES];                                                                    \
        if (path_of(fd, path)) {                                                                   \
            FAIL_IF_ARMED(#name, path, -1);                                                        \
        }                                                                                          \
        return REAL(name) call;                                                                    \
    } while (0)

int ftruncate(int fd, off_t nbytes) { ON_FD(ftruncate, fd, (fd, nbytes)); }
int ftruncate64(int fd, off64_t nbytes) { return ftruncate(fd, nbytes); }
int fallocate(int fd, int mode, off_t at, off_t nbytes)
{
    ON_FD(fallocate, fd, (fd, mode, at, nbytes));
}
int fallocate64(int fd, int mode, off64_t at, off64_t nbytes)
{
    return fallocate(fd, mode, at, nbytes);
}

/* This one returns its error. */
int posix_fallocate(int fd, off_t at, off_t nbytes)
{
    char path[PATH_NBYTES];
    if (path_of(fd, path)) {
        const int error = fault("fallocate", path, 0);
        if (error) {
            return error;
        }
    }
    return REAL(posix_fallocate)(fd, at, nbytes);
}
int posix_fallocate64(int fd, off64_t at, off64_t nbytes)
{
    return posix_fallocate(fd, at, nbytes);
}

static int lock_call(int fd, int command, void *argument)
{
    char path[PATH_NBYTES];
    if ((command == F_OFD_SETLK || command == F_SETLK) && path_of(fd, path)) {
        FAIL_IF_ARMED("lock", path, -1);
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}
#define FCNTL_BODY                                                                                 \
    va_list rest;                                                                                  \
    void *argument;                                                                                \
    va_start(rest, command);                                                                       \
    argument = va_arg(rest, void *);                                                               \
    va_end(rest);                                                                                  \
    return lock_call(fd, command, argument)
int fcntl(int fd, int command, ...) { FCNTL_BODY; }
int fcntl64(int fd, int command, ...) { FCNTL_BODY; }

static ssize_t transfer(const char *kind, int fd, size_t *nbytes)
{
    char path[PATH_NBYTES];
    int error = 0;
    if (path_of(fd, path)) {
        error = fault(kind, path, *nbytes > 1);
    }
    if (error > 0) {
        errno = error;
        return -1;
    }
    *nbytes = error < 0 ? *nbytes / 2 : *nbytes;
    return 0;
}
ssize_t write(int fd, const void *from, size_t nbytes)
{
    return transfer("write", fd, &nbytes) ? -1 : syscall(SYS_write, fd, from, nbytes);
}
ssize_t pwrite(int fd, const void *from, size_t nbytes, off_t at)
{
    return transfer("pwrite", fd, &nbytes) ? -1 : syscall(SYS_pwrite64, fd, from, nbytes, at);
}
ssize_t pwrite64(int fd, const void *from, size_t nbytes, off64_t at)
{
    return pwrite(fd, from, nbytes, at);
}
ssize_t pread(int fd, void *to, size_t nbytes, off_t at)
{
    return transfer("pread", fd, &nbytes) ? -1 : syscall(SYS_pread64, fd, to, nbytes, at);
}
ssize_t pread64(int fd, void *to, size_t nbytes, off64_t at) { return pread(fd, to, nbytes, at); }

/* --- syncs, and the maps they may be of ------------------------------------------------------ */

static void keep_sync(uint64_t inode, int64_t start, int64_t stop, int failed, int is_directory)
{
    pthread_mutex_lock(&lock);
    if (sync_count < MOST_SYNCS) {
        syncs[sync_count++] = (struct sync_range){inode, start, stop, failed, is_directory};
    }
    pthread_mutex_unlock(&lock);
}

static int sync_fd(const char *kind, int fd, long number)
{
    char path[PATH_NBYTES];
    struct stat about;
    int error = 0;
    if (!path_of(fd, path)) {
        return (int)syscall(number, fd);
    }
    syscall(SYS_fstat, fd, &about);
    error = fault(kind, path, 0);
    if (error == 0 && syscall(number, fd) != 0) {
        error = errno;
    }
    keep_sync(about.st_ino, 0, about.st_size, error, S_ISDIR(about.st_mode));
    errno = error;
    return error ? -1 : 0;
}
int fsync(int fd) { return sync_fd("fsync", fd, SYS_fsync); }
int fdatasync(int fd) { return sync_fd("fdatasync", fd, SYS_fdatasync); }

void *mmap(void *hint, size_t nbytes, int protection, int flags, int fd, off_t at)
{
    char path[PATH_NBYTES];
    const int is_meant = path_of(fd, path);
    void *base;
    if (is_meant) {
        FAIL_IF_ARMED("mmap", path, MAP_FAILED);
    }
    base = (void *)syscall(SYS_mmap, hint, nbytes, protection, flags, fd, at);
    if (is_meant && base != MAP_FAILED) {
        struct stat about;
        long number = 0;
        syscall(SYS_fstat, fd, &about);
        pthread_mutex_lock(&lock);
        while (number < MOST_MAPS && maps[number].base != NULL) {
            number++;
        }
        if (number < MOST_MAPS) {
            maps[number] = (struct map_range){base, nbytes, at, about.st_ino, ""};
            snprintf(maps[number].path, PATH_NBYTES, "%s", path);
        }
        pthread_mutex_unlock(&lock);
    }
    return base;
}
void *mmap64(void *hint, size_t nbytes, int protection, int flags, int fd, off64_t at)
{
    return mmap(hint, nbytes, protection, flags, fd, at);
}

static struct map_range *map_at(const void *address)
{
    for (long number = 0; number < MOST_MAPS; number++) {
        struct map_range *map = &maps[number];
        if (map->base && (const char *)address >= map->base &&
            (const char *)address < map->base + map->nbytes) {
            return map;
        }
    }
    return NULL;
}
int munmap(void *base, size_t nbytes)
{
    struct map_range *map;
    pthread_mutex_lock(&lock);
    map = map_at(base);
    if (map != NULL && map->base == base) {
        map->base = NULL;
    }
    pthread_mutex_unlock(&lock);
    return (int)syscall(SYS_munmap, base, nbytes);
}

int msync(void *base, size_t nbytes, int flags)
{
    struct map_range map = {0};
    int error = 0;
    pthread_mutex_lock(&lock);
    if (is_watching && map_at(base) != NULL) {
        map = *map_at(base);
    }
    pthread_mutex_unlock(&lock);
    if (map.base == NULL) {
        return (int)syscall(SYS_msync, base, nbytes, flags);
    }
    error = fault("msync", map.path, 0);
    if (error == 0 && syscall(SYS_msync, base, nbytes, flags) != 0) {
        error = errno;
    }
    const int64_t start = map.offset + ((char *)base - map.base);
    keep_sync(map.inode, start, start + (int64_t)nbytes, error, 0);
    errno = error;
    return error ? -1 : 0;
}
