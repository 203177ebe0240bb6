/* A disk that fails: the n-th write or sync of a file below a directory answers an error and does nothing.
 *
 * Loaded with LD_PRELOAD; it does nothing until shim_arm is called. Counted are the calls by which data and lengths
 * reach a file; `always` makes every call from the n-th on fail, as a disk that is gone does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char below[4096];
static size_t length;
static long wanted, seen, struck;
static int failure, always;

void shim_arm(const char *directory, long n, int error, int from_then_on)
{
    snprintf(below, sizeof below, "%s/", directory);
    wanted = n;
    seen = struck = 0;
    failure = error;
    always = from_then_on;
    length = strlen(below);
}

long shim_seen(void) { return __atomic_load_n(&seen, __ATOMIC_SEQ_CST); }
long shim_struck(void) { return __atomic_load_n(&struck, __ATOMIC_SEQ_CST); }

static int strikes(int fd)
{
    char name[64], path[4096];
    int before = errno;
    long n;
    ssize_t got;

    if (!length)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    got = readlink(name, path, sizeof path - 1);
    errno = before;
    if (got < 0)
        return 0;
    path[got] = 0;
    if (strncmp(path, below, length) && strncmp(path, below, length - 1))
        return 0;
    n = __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST);
    if (n != wanted && !(always && wanted && n > wanted))
        return 0;
    __atomic_add_fetch(&struck, 1, __ATOMIC_SEQ_CST);
    errno = failure;
    return 1;
}

#define INSTEAD_OF(type, name, parameters, arguments)              \
    type name parameters                                           \
    {                                                              \
        static type(*real) parameters;                             \
        if (!real)                                                 \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);    \
        return strikes(fd) ? -1 : real arguments;                  \
    }

INSTEAD_OF(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
INSTEAD_OF(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
INSTEAD_OF(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
INSTEAD_OF(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
INSTEAD_OF(int, fsync, (int fd), (fd))
INSTEAD_OF(int, fdatasync, (int fd), (fd))
INSTEAD_OF(int, ftruncate, (int fd, off_t size), (fd, size))
INSTEAD_OF(int, ftruncate64, (int fd, off64_t size), (fd, size))
INSTEAD_OF(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size))
INSTEAD_OF(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
