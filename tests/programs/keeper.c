// A library to preload that keeps a pipe for itself, as libunwind does to try out addresses. At every malloc it looks
// whether the pipe is there. If it is not, that is told, its numbers are closed and a new pipe is made. What it tells
// are lines of the file that $KEEPER names: `lost PID`, and `left PID` where a program runs its exit handlers.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
static int ends[2] = {-1, -1};
static ino_t known;

static void tell(const char *what) {
    const char *path = getenv("KEEPER");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    char line[64];
    int n = snprintf(line, sizeof line, "%s %d\n", what, (int)getpid());
    ssize_t written = write(fd, line, (size_t)n);
    (void)written;
    close(fd);
}
static void open_pipe(void) {
    struct stat at;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) || fstat(ends[0], &at)) abort();
    known = at.st_ino;
}
static int is_there(int fd) {
    struct stat at;
    return fstat(fd, &at) == 0 && at.st_ino == known;
}
__attribute__((constructor)) static void begin(void) { open_pipe(); }
__attribute__((destructor)) static void end(void) { tell("left"); }

__attribute__((visibility("default"))) void *malloc(size_t n) {
    if (known && !(is_there(ends[0]) && is_there(ends[1]))) {
        known = 0;
        tell("lost");
        close(ends[0]);
        close(ends[1]);
        open_pipe();
    }
    return __libc_malloc(n);
}
