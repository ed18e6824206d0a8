// jumping LIMIT: a signal handler leaves `mmap` by a jump, over and over. What was to be mapped is unmapped then, so that
// nothing of it may stay charged. Prints how often it did, and how many bytes of the limit were missing in the end.
#define _GNU_SOURCE
#include "room.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { SIZE = 1 << 20, ENOUGH = 60 };
static sigjmp_buf before;
static volatile sig_atomic_t is_mapping;

static void leave(int number) {
    (void)number;
    if (is_mapping) siglongjmp(before, 1);
}

int main(int count, char **words) {
    if (count != 2) return 2;
    size_t limit = strtoull(words[1], NULL, 10), all = room_below(limit + 1);
    char *place = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(place, SIZE);
    struct sigaction action = {.sa_handler = leave};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &often, NULL);
    volatile int jumps = 0;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_FIXED_NOREPLACE;
    for (volatile int i = 0; i < 1000000 && jumps < ENOUGH; i++) {
        if (sigsetjmp(before, 1) == 0) {
            is_mapping = 1;
            mmap(place, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
            is_mapping = 0;
        } else {
            is_mapping = 0;
            jumps++;
        }
        munmap(place, SIZE);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    printf("%d %ld\n", jumps, (long)(all - room_below(limit + 1)));
    return 0;
}
