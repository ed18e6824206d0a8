// 8 threads that allocate, free and resize each other's blocks through slots that all of them share.
#include "truth.h"
enum { THREADS = 8, STEPS = 10000, SLOTS = 97 };
static void *slots[SLOTS];
static pthread_barrier_t start;

static void *work(void *arg) {
    uint64_t seed = 0x1234567 + (uint64_t)(uintptr_t)arg * 7919;
    pthread_barrier_wait(&start);
    for (int i = 0; i < STEPS; i++) {
        uint64_t r = t_random(&seed);
        size_t n = 1 + (r >> 20) % ((r >> 50) % 8 == 0 ? 20000 : 400);
        void *p = __atomic_exchange_n(&slots[r % SLOTS], NULL, __ATOMIC_ACQ_REL);
        void *q;
        if (p && (r >> 40) % 2) { t_free(p); q = t_malloc(n); }
        else if (p && (r >> 41) % 2) q = t_reallocarray(p, n, 2);
        else if (p) q = t_realloc(p, n);
        else q = (r >> 42) % 2 ? t_malloc(n) : t_calloc(3, n);
        T_CHECK(q);
        *(volatile char *)q = (char)i;
        q = __atomic_exchange_n(&slots[(r >> 10) % SLOTS], q, __ATOMIC_ACQ_REL);
        t_free(q);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++) threads[i] = t_start(work, (void *)i, 0);
    for (int i = 0; i < THREADS; i++) t_join(threads[i]);
    for (int i = 0; i < SLOTS / 2; i++) t_free(slots[i]);
    return 0;
}
