/* A record of everything that reaches the files below a directory, in order: what a power cut may keep or lose.
 *
 * Loaded with LD_PRELOAD; it does nothing until record_begin is called. One record is a line, with the bytes behind it:
 *
 *   W path offset size\n bytes   write      T path size\n   length     S path\n   synced (a directory: its entries)
 *   C path\n  created            R old\tnew\n  renamed      U path\n  removed    M text\n  a mark of the harness
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char below[4096];
static size_t length;
static FILE *record;
static pthread_mutex_t door = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void record_begin(const char *directory, const char *file)
{
    pthread_mutex_lock(&door);
    snprintf(below, sizeof below, "%s", directory);
    length = strlen(below);
    record = fopen(file, "we");
    pthread_mutex_unlock(&door);
}

void record_end(void)
{
    pthread_mutex_lock(&door);
    if (record)
        fclose(record);
    record = NULL;
    pthread_mutex_unlock(&door);
}

void record_mark(const char *text)
{
    pthread_mutex_lock(&door);
    if (record)
        fprintf(record, "M %s\n", text);
    pthread_mutex_unlock(&door);
}

static int inside(const char *path)
{
    return record && !strncmp(path, below, length) && (!path[length] || path[length] == '/');
}

static int name_of(int fd, char *path, size_t size)
{
    char link[64];
    int before = errno;
    ssize_t got;

    if (!record)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    got = readlink(link, path, size - 1);
    errno = before;
    if (got < 0)
        return 0;
    path[got] = 0;
    return inside(path);
}

static void wrote(int fd, const void *data, ssize_t size, off64_t at)
{
    char path[4096];

    if (size <= 0 || !name_of(fd, path, sizeof path))
        return;
    fprintf(record, "W %s %lld %lld\n", path, (long long)at, (long long)size);
    fwrite(data, 1, (size_t)size, record);
}

#define REAL(type, name, parameters)                          \
    static type(*real) parameters;                            \
    type answer;                                              \
    if (!real)                                                \
        real = (type(*) parameters)dlsym(RTLD_NEXT, #name);   \
    pthread_mutex_lock(&door)
#define DONE                                                  \
    pthread_mutex_unlock(&door);                              \
    return answer

ssize_t write(int fd, const void *data, size_t size)
{
    off64_t at;
    REAL(ssize_t, write, (int, const void *, size_t));
    at = record ? lseek64(fd, 0, SEEK_CUR) : 0;
    answer = real(fd, data, size);
    if (at >= 0)
        wrote(fd, data, answer, at);
    DONE;
}

#define PWRITE(name, type)                                                       \
    ssize_t name(int fd, const void *data, size_t size, type at)                 \
    {                                                                            \
        REAL(ssize_t, name, (int, const void *, size_t, type));                  \
        answer = real(fd, data, size, at);                                       \
        wrote(fd, data, answer, at);                                             \
        DONE;                                                                    \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define LENGTH(name, type)                                                       \
    int name(int fd, type size)                                                  \
    {                                                                            \
        char path[4096];                                                         \
        REAL(int, name, (int, type));                                            \
        answer = real(fd, size);                                                 \
        if (!answer && name_of(fd, path, sizeof path))                           \
            fprintf(record, "T %s %lld\n", path, (long long)size);               \
        DONE;                                                                    \
    }
LENGTH(ftruncate, off_t)
LENGTH(ftruncate64, off64_t)

#define SYNC(name)                                                               \
    int name(int fd)                                                             \
    {                                                                            \
        char path[4096];                                                         \
        REAL(int, name, (int));                                                  \
        answer = real(fd);                                                       \
        if (!answer && name_of(fd, path, sizeof path))                           \
            fprintf(record, "S %s\n", path);                                     \
        DONE;                                                                    \
    }
SYNC(fsync)
SYNC(fdatasync)

#define OPEN(name)                                                               \
    int name(const char *path, int flags, ...)                                   \
    {                                                                            \
        mode_t mode = 0;                                                         \
        int fresh, before;                                                       \
        va_list rest;                                                            \
        REAL(int, name, (const char *, int, ...));                               \
        va_start(rest, flags);                                                   \
        if (flags & O_CREAT)                                                     \
            mode = va_arg(rest, mode_t);                                         \
        va_end(rest);                                                            \
        before = errno;                                                          \
        fresh = record && (flags & O_CREAT) && inside(path) && access(path, F_OK); \
        errno = before;                                                          \
        answer = real(path, flags, mode);                                        \
        if (answer >= 0 && fresh)                                                \
            fprintf(record, "C %s\n", path);                                     \
        else if (answer >= 0 && record && (flags & O_TRUNC) && inside(path))     \
            fprintf(record, "T %s 0\n", path);                                   \
        DONE;                                                                    \
    }
OPEN(open)
OPEN(open64)

int unlink(const char *path)
{
    REAL(int, unlink, (const char *));
    answer = real(path);
    if (!answer && inside(path))
        fprintf(record, "U %s\n", path);
    DONE;
}

int rename(const char *old, const char *new)
{
    REAL(int, rename, (const char *, const char *));
    answer = real(old, new);
    if (!answer && inside(old))
        fprintf(record, "R %s\t%s\n", old, new);
    DONE;
}
