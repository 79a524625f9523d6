// Makes chosen system calls on files below one folder fail, and allocations of SQLite: preloaded into a process, which
// arms it through ctypes. Every call of the kind that is armed counts from 1; those from `first` to `last` fail.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { NONE, OPEN, READ, WRITE, SYNC, TRUNCATE, RENAME, LINK, LOCK, MAP, ALLOCATE };

#define SHORT -1 // in place of an error: a write takes half of its bytes, and the next one finds the disk full

static char below[PATH_MAX];
static size_t below_length;
static atomic_int armed;
static atomic_long seen, first, last, hits;
static atomic_int failing_with;
static char *sqlite_begin, *sqlite_end;

void *__libc_malloc(size_t);
void *__libc_realloc(void *, size_t);

void faults_arm(const char *folder, int kind, long from, long to, int error) {
    atomic_store(&armed, NONE);
    snprintf(below, sizeof below, "%s", folder);
    below_length = strlen(below);
    atomic_store(&seen, 0);
    atomic_store(&hits, 0);
    atomic_store(&first, from);
    atomic_store(&last, to);
    atomic_store(&failing_with, error);
    atomic_store(&armed, kind);
}

void faults_disarm(void) {
    atomic_store(&armed, NONE);
    atomic_store(&hits, 0);
}

long faults_seen(void) { return atomic_load(&seen); }
long faults_hits(void) { return atomic_load(&hits); }

// Tells the range of addresses from which an allocation is SQLite's.
void faults_sqlite_lies(char *begin, char *end) {
    sqlite_begin = begin;
    sqlite_end = end;
}

// Says whether this call is to fail: 0 where not, else the error, or SHORT.
static int verdict(void) {
    long number = atomic_fetch_add(&seen, 1) + 1;
    if (number < atomic_load(&first) || number > atomic_load(&last))
        return 0;
    atomic_fetch_add(&hits, 1);
    return atomic_load(&failing_with);
}

static int is_path_below(const char *path) {
    return strncmp(path, below, below_length) == 0 && (path[below_length] == '/' || path[below_length] == 0);
}

static int is_below(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_path_below(path);
}

static int fails(enum kind kind, int is_ours) {
    if (atomic_load(&armed) != (int)kind || !is_ours)
        return 0;
    int error = verdict();
    if (error > 0)
        errno = error;
    return error;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define OPENS(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                     \
        va_list rest;                                                                                                \
        va_start(rest, flags);                                                                                       \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                    \
        va_end(rest);                                                                                                \
        if (atomic_load(&armed) == OPEN && fails(OPEN, is_path_below(path)))                                         \
            return -1;                                                                                               \
        REAL(name);                                                                                                  \
        return real(path, flags, mode);                                                                              \
    }
OPENS(open)
OPENS(open64)

int openat64(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (atomic_load(&armed) == OPEN && fails(OPEN, path[0] == '/' ? is_path_below(path) : is_below(folder)))
        return -1;
    REAL(openat64);
    return real(folder, path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    if (fails(OPEN, is_path_below(path)))
        return -1;
    REAL(mkdir);
    return real(path, mode);
}

// Returns how much of a write is to be done; -1 for nothing of it.
static ssize_t taken(int descriptor, size_t wanted) {
    if (atomic_load(&armed) != WRITE || !is_below(descriptor))
        return wanted;
    int error = verdict();
    if (error == SHORT) {
        if (wanted > 1)
            return wanted / 2;
        error = ENOSPC;
    }
    if (!error)
        return wanted;
    errno = error;
    return -1;
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
    ssize_t allowed = taken(descriptor, length);
    REAL(write);
    return allowed < 0 ? -1 : real(descriptor, bytes, allowed);
}

#define WRITES_AT(name)                                                                                              \
    ssize_t name(int descriptor, const void *bytes, size_t length, off64_t at) {                                     \
        ssize_t allowed = taken(descriptor, length);                                                                 \
        REAL(name);                                                                                                  \
        return allowed < 0 ? -1 : real(descriptor, bytes, allowed, at);                                              \
    }
WRITES_AT(pwrite)
WRITES_AT(pwrite64)

// What copies within the kernel is a write too; without it Python goes on by read and write.
#define COPIES(name)                                                                                                 \
    ssize_t name(int to, int from, off64_t *at, size_t length) {                                                     \
        ssize_t allowed = taken(to, length);                                                                         \
        REAL(name);                                                                                                  \
        return allowed < 0 ? -1 : real(to, from, at, allowed);                                                       \
    }
COPIES(sendfile)
COPIES(sendfile64)

ssize_t read(int descriptor, void *bytes, size_t length) {
    if (atomic_load(&armed) == READ && fails(READ, is_below(descriptor)))
        return -1;
    REAL(read);
    return real(descriptor, bytes, length);
}

ssize_t pread64(int descriptor, void *bytes, size_t length, off64_t at) {
    if (atomic_load(&armed) == READ && fails(READ, is_below(descriptor)))
        return -1;
    REAL(pread64);
    return real(descriptor, bytes, length, at);
}

#define SYNCS(name)                                                                                                  \
    int name(int descriptor) {                                                                                       \
        if (atomic_load(&armed) == SYNC && fails(SYNC, is_below(descriptor)))                                        \
            return -1;                                                                                               \
        REAL(name);                                                                                                  \
        return real(descriptor);                                                                                     \
    }
SYNCS(fsync)
SYNCS(fdatasync)

int ftruncate64(int descriptor, off64_t length) {
    if (atomic_load(&armed) == TRUNCATE && fails(TRUNCATE, is_below(descriptor)))
        return -1;
    REAL(ftruncate64);
    return real(descriptor, length);
}

int rename(const char *from, const char *to) {
    if (fails(RENAME, is_path_below(to)))
        return -1;
    REAL(rename);
    return real(from, to);
}

int renameat(int folder, const char *from, int other, const char *to) {
    if (fails(RENAME, to[0] == '/' ? is_path_below(to) : is_below(other)))
        return -1;
    REAL(renameat);
    return real(folder, from, other, to);
}

int unlinkat(int folder, const char *path, int flags) {
    if (fails(LINK, path[0] == '/' ? is_path_below(path) : is_below(folder)))
        return -1;
    REAL(unlinkat);
    return real(folder, path, flags);
}

int symlink(const char *target, const char *path) {
    if (fails(LINK, is_path_below(path)))
        return -1;
    REAL(symlink);
    return real(target, path);
}

int unlink(const char *path) {
    if (fails(LINK, is_path_below(path)))
        return -1;
    REAL(unlink);
    return real(path);
}

int fcntl64(int descriptor, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    int is_lock = (command == F_SETLK || command == F_OFD_SETLK) && ((struct flock *)argument)->l_type != F_UNLCK;
    if (is_lock && atomic_load(&armed) == LOCK && fails(LOCK, is_below(descriptor)))
        return -1;
    REAL(fcntl64);
    return real(descriptor, command, argument);
}

void *mmap64(void *where, size_t length, int access, int flags, int descriptor, off64_t at) {
    if (descriptor >= 0 && atomic_load(&armed) == MAP && fails(MAP, is_below(descriptor)))
        return MAP_FAILED;
    REAL(mmap64);
    return real(where, length, access, flags, descriptor, at);
}

static int is_sqlite(void *caller) { return (char *)caller >= sqlite_begin && (char *)caller < sqlite_end; }

void *malloc(size_t size) {
    if (atomic_load(&armed) == ALLOCATE && fails(ALLOCATE, is_sqlite(__builtin_return_address(0))))
        return NULL;
    return __libc_malloc(size);
}

void *realloc(void *old, size_t size) {
    if (atomic_load(&armed) == ALLOCATE && fails(ALLOCATE, is_sqlite(__builtin_return_address(0))))
        return NULL;
    return __libc_realloc(old, size);
}
