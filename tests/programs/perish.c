// perish ROUNDS LIMIT: children that allocate and release all the time are killed at random moments, again and again.
// At the end as much can be had as at the beginning: prints both. (It prints to a buffer that it has from the start.)
#include "room.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3, BLOCKS = 64 };

static void *work(void *seed) {
    unsigned random = (unsigned)(size_t)seed + (unsigned)getpid();
    void *blocks[BLOCKS] = {0};
    for (;;) {
        int i = rand_r(&random) % BLOCKS;
        free(blocks[i]);
        blocks[i] = malloc(1 + rand_r(&random) % 200000);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int rounds = atoi(argv[1]);
    size_t limit = strtoull(argv[2], 0, 10);
    unsigned random = 1;
    static char buffer[256];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    size_t before = room_below(limit + 1);
    for (int round = 0; round < rounds; round++) {
        pid_t children[CHILDREN];
        for (int i = 0; i < CHILDREN; i++) {
            children[i] = fork();
            if (children[i] < 0) return 3;
            if (children[i] == 0) {
                pthread_t thread;
                pthread_create(&thread, 0, work, (void *)1);
                work(0);
            }
        }
        usleep(500 + rand_r(&random) % 10000);
        for (int i = 0; i < CHILDREN; i++) kill(children[i], SIGKILL);
        for (int i = 0; i < CHILDREN; i++) waitpid(children[i], 0, 0);
    }
    size_t after = 0;
    for (int i = 0; i < 1000 && after < before; i++) {
        usleep(10000);
        after = room_below(limit + 1);
    }
    printf("%zu %zu\n", before, after);
    return 0;
}
