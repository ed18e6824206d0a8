// enclosed WAY ARGS…: takes memory in one of several ways, and says so where it came to an end.
//   raw BYTES        maps by a system call of its own, 1 MiB at a time, and touches all
//   touch BYTES      the same by malloc
//   cache FILE BYTES writes a file and reads it
//   file FILE BYTES  the same and leaves it to its caller to remove it
//   bomb COUNT       so many processes, each in a session of its own, that stay
//   copy BYTES       a block that a child writes over
//   stay SECONDS     does nothing
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static char buffer[MIB];

static int take(size_t bytes, int raw) {
    for (size_t taken = 0; taken < bytes; taken += MIB) {
        char *part = raw ? (char *)syscall(SYS_mmap, NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                         : malloc(MIB);
        if (part == NULL || part == MAP_FAILED) return 9;
        memset(part, 1, MIB);
    }
    // Long enough to be looked at.
    usleep(1000 * 1000);
    return 0;
}

static int files(const char *name, size_t bytes) {
    int file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (file < 0) return 8;
    for (size_t written = 0; written < bytes; written += MIB)
        if (write(file, buffer, MIB) != MIB) return 7;
    lseek(file, 0, SEEK_SET);
    while (read(file, buffer, MIB) > 0) {}
    usleep(300 * 1000);
    return 0;
}

static void bomb(int count) {
    if (count > 1) {
        // A tree, so that each has to be found by way of another that may be gone.
        for (int side = 0; side < 2; side++) {
            int part = side == 0 ? (count - 1) / 2 : count - 1 - (count - 1) / 2;
            if (part > 0 && fork() == 0) {
                setsid();
                bomb(part);
                _exit(0);
            }
        }
    }
    char *block = malloc(MIB);
    if (block != NULL) memset(block, 1, MIB);
    sleep(60);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *way = words[1];
    size_t bytes = strtoull(words[count - 1], NULL, 10);
    int status = 0;
    if (strcmp(way, "raw") == 0) status = take(bytes, 1);
    else if (strcmp(way, "touch") == 0) status = take(bytes, 0);
    else if (strcmp(way, "cache") == 0 || strcmp(way, "file") == 0) status = files(words[2], bytes);
    else if (strcmp(way, "bomb") == 0) bomb((int)bytes);
    else if (strcmp(way, "stay") == 0) sleep((unsigned)bytes);
    else if (strcmp(way, "copy") == 0) {
        char *block = malloc(bytes);
        if (block == NULL) return 9;
        memset(block, 1, bytes);
        if (fork() == 0) {
            memset(block, 2, bytes);
            usleep(500 * 1000);
            _exit(0);
        }
        wait(NULL);
    } else return 2;
    if (status == 0) puts("done");
    return status;
}
