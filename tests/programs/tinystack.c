// Threads whose stack is 16 KiB, thread descriptor and all; every entry point is called on one.
#include "truth.h"
static void *work(void *arg) {
    void *p = NULL;
    for (size_t i = 0; i < 50; i++) {
        t_free(t_realloc(t_malloc(i), 2 * i + 1));
        t_free(t_calloc(i, 3));
        t_free(t_reallocarray(NULL, i + 1, 5));
        t_free(t_memalign(64, i));
        T_CHECK(t_posix_memalign(&p, 128, i) == 0);
        t_free(p);
        t_free(t_aligned_alloc(32, 32 * i));
        t_free(t_valloc(i));
        t_free(t_malloc(200000 + i));
    }
    return arg;
}

int main(void) {
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) threads[i] = t_start(work, NULL, 16384);
    for (int i = 0; i < 16; i++) t_join(threads[i]);
    return 0;
}
