// A signal handler leaves `malloc` by a jump, over and over, at any instruction of it. Needs an allocator that stands that:
// see bump.c. Prints how often it did; a thousand blocks of a size of their own come last.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { ENOUGH = 2000, LAST = 1000, SIZE = 777 };
static sigjmp_buf before;
static volatile sig_atomic_t is_making;
static void *volatile block;

static void leave(int number) {
    (void)number;
    if (is_making) siglongjmp(before, 1);
}

__attribute__((noinline)) static void make(size_t size) {
    block = malloc(size);
    __asm__ volatile("" ::: "memory");
}

int main(void) {
    struct sigaction action = {.sa_handler = leave};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, NULL);
    volatile int jumps = 0;
    while (jumps < ENOUGH) {
        if (sigsetjmp(before, 1) == 0) {
            is_making = 1;
            for (int i = 0; i < 10000; i++) make(16);
            is_making = 0;
        } else {
            is_making = 0;
            jumps++;
        }
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    for (int i = 0; i < LAST; i++) make(SIZE);
    printf("%d\n", jumps);
    return 0;
}
