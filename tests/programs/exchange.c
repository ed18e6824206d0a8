// exchange THREADS STEPS: threads that free and resize each other's blocks as fast as they can, with nothing between the calls.
// Few sizes and few blocks, so that an address is handed out again at once, to another thread. All is freed in the end.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
enum { SLOTS = 16 };
static struct { void *p; char pad[56]; } slots[SLOTS];
static long steps;

static void *work(void *arg) {
    uint64_t x = 88172645463325252ull + (uint64_t)(uintptr_t)arg * 7919;
    for (long i = 0; i < steps; i++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        // Above the size of the thread caches of most allocators at times, so that blocks move between threads.
        size_t n = x >> 60 ? 24 + (x >> 8) % 3 * 500 : 2000 + (x >> 8) % 3 * 1000;
        void *p = __atomic_exchange_n(&slots[x % SLOTS].p, NULL, __ATOMIC_ACQ_REL);
        if (p && (x >> 20) % 3) { free(p); p = malloc(n); }
        else p = realloc(p, n);
        p = __atomic_exchange_n(&slots[(x >> 30) % SLOTS].p, p, __ATOMIC_ACQ_REL);
        free(p);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    int n = argc > 1 ? atoi(argv[1]) : 4;
    steps = argc > 2 ? atol(argv[2]) : 100000;
    for (intptr_t i = 0; i < n; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++) free(slots[i].p);
    return 0;
}
