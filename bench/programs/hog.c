// A greedy entry of a contest: hog PROCESSES MEBIBYTES
//
// Each process takes blocks of 1 MiB and writes to all of each, until it is refused or has MEBIBYTES. When all are
// done, prints how many MiB all had at one time, and how many processes were refused, and killed.
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
    atomic_long held, done, refused;
};

int main(int count, char **words) {
    if (count != 3) return 2;
    int processes = atoi(words[1]), killed = 0;
    long most = atol(words[2]);
    struct shared *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 2;
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (child < 0) return 2;
        if (child > 0) continue;
        for (long had = 0; had < most; had++) {
            char *block = malloc(1 << 20);
            if (block == NULL) {
                atomic_fetch_add(&all->refused, 1);
                break;
            }
            memset(block, 1, 1 << 20);
            atomic_fetch_add(&all->held, 1);
        }
        atomic_fetch_add(&all->done, 1);
        // Nobody gives anything back before all have what they can get, or two seconds have passed.
        for (int round = 0; round < 200 && atomic_load(&all->done) < processes; round++) usleep(10000);
        _exit(0);
    }
    for (int i = 0, status; i < processes; i++) {
        if (wait(&status) > 0) killed += WIFSIGNALED(status);
    }
    printf("%ld MiB, %ld refused, %d killed\n", atomic_load(&all->held), atomic_load(&all->refused), killed);
    return 0;
}
