// 1,000 short threads, up to 40 alive at once; each frees what an earlier one left and leaves a block itself.
#include "truth.h"
enum { THREADS = 1000, ALIVE = 40, LEFT = 64 };
static void *left[LEFT];

static void *work(void *arg) {
    uintptr_t k = (uintptr_t)arg;
    void *p = t_malloc(k % 300 + 1);
    p = t_realloc(p, k % 5000 + 1);
    void *q = __atomic_exchange_n(&left[k % LEFT], p, __ATOMIC_ACQ_REL);
    if (k % 3) t_free(q);
    else { q = t_realloc(q, 77); t_free(q); }
    return NULL;
}

int main(void) {
    pthread_t threads[ALIVE];
    for (uintptr_t i = 0; i < THREADS; i++) {
        if (i >= ALIVE) t_join(threads[i % ALIVE]);
        threads[i % ALIVE] = t_start(work, (void *)i, i % 2 ? 65536 : 0);
    }
    for (int i = 0; i < ALIVE; i++) t_join(threads[i]);
    return 0;
}
