// straying SEGMENT BYTES STATIC: a job that is hard to catch. It maps the shared memory SEGMENT, and has children: one
// that leaves its session and its parent, one that becomes the program STATIC, which no library can be loaded into, and
// one that waits. Their pids go to stdout. Then it asks for BYTES again and again, and waits.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(void) {
    char line[32];
    int length = snprintf(line, sizeof line, "%d\n", (int)getpid());
    if (write(1, line, length) != length) _exit(9);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int fd = shm_open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) return 3;
    char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) return 4;
    say();
    if (fork() == 0) {
        // Gone before anybody looks for it: its child belongs to nobody.
        setsid();
        if (fork()) _exit(0);
        say();
        execl(argv[3], argv[3], (char *)0);
        _exit(10);
    }
    if (fork() == 0) {
        say();
        pause();
        _exit(0);
    }
    usleep(300000);
    void *volatile first = malloc(strtoull(argv[2], 0, 10));
    void *volatile second = malloc(strtoull(argv[2], 0, 10));
    fprintf(stderr, "went on with %p %p %d\n", first, second, shared[0]);
    pause();
    return 0;
}
