// torn HOW TICKS: timers interrupt calls of the allocator at any instruction, and their handlers call it, too. (With bump.c,
// which bears that.) HOW is `return`, or `jump`: the handler of one timer leaves by siglongjmp.
// Prints, for main and for each handler, the size that its blocks have, how many mallocs it began and how many returned, and
// how many frees; then the same of its calls of madvise.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct counts { unsigned long size, begun, made, freeing, freed, advising, advised; };
static volatile struct counts counts[3] = {{.size = 40}, {.size = 1040}, {.size = 2040}};
static sigjmp_buf back;
static int jumps;
static char *page;

static void some(int who) {
    volatile struct counts *c = &counts[who];
    c->begun++;
    void *volatile p = malloc(c->size);
    c->made++;
    c->freeing++;
    free(p);
    c->freed++;
    c->advising++;
    madvise(page, 4096, MADV_NORMAL);
    c->advised++;
}
static void inner(int signal) { (void)signal; some(2); }
static void outer(int signal) {
    (void)signal;
    some(1);
    if (jumps) siglongjmp(back, 1);
}
static void start(int signal, long nanoseconds, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(signal, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    struct itimerspec every = {{0, nanoseconds}, {0, nanoseconds}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL)) exit(3);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    jumps = !strcmp(argv[1], "jump");
    unsigned long ticks = strtoul(argv[2], NULL, 10);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 10; i++) some(0);
    sigset_t none, all;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &all, NULL);
    start(SIGUSR1, 31000, outer);
    if (!jumps) start(SIGUSR2, 37000, inner);
    sigsetjmp(back, 1);
    sigprocmask(SIG_SETMASK, &none, NULL);
    while (counts[1].made < ticks) some(0);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < 3; i++) {
        volatile struct counts *c = &counts[i];
        char line[200];
        int length = snprintf(line, sizeof line, "%lu %lu %lu %lu %lu %lu %lu\n", c->size, c->begun, c->made, c->freeing, c->freed,
                              c->advising, c->advised);
        if (write(1, line, (size_t)length) != length) return 4;
    }
    return 0;
}
