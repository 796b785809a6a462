/* The system calls of Mapping. Each returns 0, or the errno. */
#ifndef RS_MAPPING_H
#define RS_MAPPING_H
#include <Python.h>
#include <errno.h>
#include <stdint.h>

enum {
    RS_ADVICE_NORMAL, RS_ADVICE_RANDOM, RS_ADVICE_SEQUENTIAL, RS_ADVICE_WILLNEED,
    RS_ADVICE_DONTNEED,
};

#ifdef _WIN32
static inline int64_t rs_page_nbytes(void) { return 4096; }
static inline int rs_file_nbytes(int fd, int64_t *nbytes)
{
    (void)fd;
    *nbytes = 0;
    return ENOSYS;
}
static inline int rs_map(int fd, int64_t nbytes, int writable, int private_copy, void **base)
{
    (void)fd, (void)nbytes, (void)writable, (void)private_copy, (void)base;
    return ENOSYS;
}
static inline void rs_unmap(void *base, int64_t nbytes) { (void)base, (void)nbytes; }
static inline int rs_advise(void *base, int64_t position, int64_t nbytes, int advice)
{
    (void)base, (void)position, (void)nbytes, (void)advice;
    return ENOSYS;
}
static inline int rs_sync(void *base, int64_t position, int64_t nbytes)
{
    (void)base, (void)position, (void)nbytes;
    return ENOSYS;
}
static inline int rs_populate(void *base, int64_t position, int64_t nbytes, int writes)
{
    (void)base, (void)position, (void)nbytes, (void)writes;
    return ENOSYS;
}
static inline int rs_zero(int fd, int64_t position, int64_t nbytes)
{
    (void)fd, (void)position, (void)nbytes;
    return ENOSYS;
}
static inline int rs_lock(void *base, int64_t position, int64_t nbytes)
{
    (void)base, (void)position, (void)nbytes;
    return ENOSYS;
}
static inline int rs_unlock(void *base, int64_t position, int64_t nbytes)
{
    (void)base, (void)position, (void)nbytes;
    return ENOSYS;
}
static inline int rs_allocate(int fd, int64_t position, int64_t nbytes)
{
    (void)fd, (void)position, (void)nbytes;
    return ENOSYS;
}
static inline int rs_is_named(const char *path, uint64_t device, uint64_t inode, int64_t nbytes)
{
    (void)path, (void)device, (void)inode, (void)nbytes;
    return 0;
}
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif

#if defined(__linux__) && !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_READ 22 /* Linux 5.14; older C libraries do not name them */
#define MADV_POPULATE_WRITE 23
#endif

static inline int64_t rs_page_nbytes(void) { return (int64_t)sysconf(_SC_PAGESIZE); }

static inline int rs_is_named(const char *path, uint64_t device, uint64_t inode, int64_t nbytes)
{
#ifdef STATX_INO
    /* Do not ask for the file's times: Linux 6.13 and later would store finer ones at the next
     * write, and the sync of that write would then write the inode as well. */
    struct statx about;
    if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_SIZE, &about) == 0) {
        return (uint64_t)makedev(about.stx_dev_major, about.stx_dev_minor) == device
               && about.stx_ino == inode && (int64_t)about.stx_size >= nbytes;
    }
#endif
    struct stat status;
    return stat(path, &status) == 0 && (uint64_t)status.st_dev == device
           && (uint64_t)status.st_ino == inode && (int64_t)status.st_size >= nbytes;
}

static inline int rs_file_nbytes(int fd, int64_t *nbytes)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return errno;
    }
    *nbytes = (int64_t)status.st_size;
    return 0;
}

/* fd -1: anonymous memory, zeroed. */
static inline int rs_map(int fd, int64_t nbytes, int writable, int private_copy, void **base)
{
    const int sharing = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS
                               : private_copy ? MAP_PRIVATE : MAP_SHARED;
    const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *address;
    do {
        address = mmap(NULL, (size_t)nbytes, access, sharing, fd, 0);
    } while (address == MAP_FAILED && errno == EINTR);
    if (address == MAP_FAILED) {
        return errno;
    }
    *base = address;
    return 0;
}

static inline void rs_unmap(void *base, int64_t nbytes) { munmap(base, (size_t)nbytes); }

/* The pages of a range: their address, and the range's length from there. */
static inline void *rs_pages(void *base, int64_t position, int64_t nbytes, size_t *length)
{
    const int64_t ragged = position % rs_page_nbytes();
    *length = (size_t)(nbytes + ragged);
    return (char *)base + (position - ragged);
}

static inline int rs_advise(void *base, int64_t position, int64_t nbytes, int advice)
{
    static const int words[] = {
        [RS_ADVICE_NORMAL] = MADV_NORMAL,         [RS_ADVICE_RANDOM] = MADV_RANDOM,
        [RS_ADVICE_SEQUENTIAL] = MADV_SEQUENTIAL, [RS_ADVICE_WILLNEED] = MADV_WILLNEED,
        [RS_ADVICE_DONTNEED] = MADV_DONTNEED,
    };
    size_t length;
    void *address = rs_pages(base, position, nbytes, &length);
    return madvise(address, length, words[advice]) == 0 ? 0 : errno;
}

static inline int rs_sync(void *base, int64_t position, int64_t nbytes)
{
    size_t length;
    void *address = rs_pages(base, position, nbytes, &length);
    return msync(address, length, MS_SYNC) == 0 ? 0 : errno;
}

static inline int rs_populate(void *base, int64_t position, int64_t nbytes, int writes)
{
#ifdef MADV_POPULATE_WRITE
    size_t length;
    void *address = rs_pages(base, position, nbytes, &length);
    const int word = writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    return madvise(address, length, word) == 0 ? 0 : errno;
#else
    (void)base, (void)position, (void)nbytes, (void)writes;
    return ENOSYS;
#endif
}

/* Keep the pages in memory: present ones now, the others once they are touched. If the system can
 * lock only present pages, it makes all pages present. */
static inline int rs_lock(void *base, int64_t position, int64_t nbytes)
{
    size_t length;
    void *address = rs_pages(base, position, nbytes, &length);
#if defined(__linux__) && defined(SYS_mlock2)
    const unsigned int on_fault = 1; /* MLOCK_ONFAULT; older C libraries name neither */
    if (syscall(SYS_mlock2, address, length, on_fault) == 0) {
        return 0;
    }
    if (errno != ENOSYS && errno != EINVAL) {
        return errno;
    }
#endif
    return mlock(address, length) == 0 ? 0 : errno;
}

static inline int rs_unlock(void *base, int64_t position, int64_t nbytes)
{
    size_t length;
    void *address = rs_pages(base, position, nbytes, &length);
    return munlock(address, length) == 0 ? 0 : errno;
}

/* macOS can only reserve blocks past a file's end, which fills no hole: unsupported there. */
static inline int rs_allocate(int fd, int64_t position, int64_t nbytes)
{
#ifdef __linux__
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)position, (off_t)nbytes) == 0 ? 0 : errno;
#else
    (void)fd, (void)position, (void)nbytes;
    return ENOSYS;
#endif
}

/* Make a range zero that keeps its blocks, so that the file system holds no data there. */
static inline int rs_zero(int fd, int64_t position, int64_t nbytes)
{
#ifdef FALLOC_FL_ZERO_RANGE
    const int mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE;
    return fallocate(fd, mode, (off_t)position, (off_t)nbytes) == 0 ? 0 : errno;
#else
    (void)fd, (void)position, (void)nbytes;
    return ENOSYS;
#endif
}
#endif

#endif
