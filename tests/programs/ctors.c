// Calls before main (constructors of two priorities) and after it (atexit, on_exit, destructors, pthread keys).
#include "truth.h"
static pthread_key_t key;
static void *early, *first;

__attribute__((constructor(102))) static void before_all(void) { early = t_malloc(1001); }
__attribute__((constructor)) static void before(void) { first = t_calloc(10, 11); early = t_realloc(early, 1002); }
__attribute__((destructor)) static void after(void) { t_free(first); t_malloc(1003); }
__attribute__((destructor(102))) static void after_all(void) { t_free(early); t_free(t_malloc(1004)); }
static void at_exit_1(void) { t_malloc(21); }
static void at_exit_2(int status, void *arg) { T_CHECK(status == 8); t_free(arg); }
static void key_gone(void *p) {
    // A destructor that allocates and sets its key again is called again, up to four times.
    size_t n = *(size_t *)p;
    t_free(p);
    if (n < 3) {
        size_t *q = (size_t *)t_malloc(64 + n);
        *q = n + 1;
        pthread_setspecific(key, q);
    }
}
static void *work(void *arg) {
    size_t *p = (size_t *)t_malloc(64);
    *p = 0;
    pthread_setspecific(key, p);
    return arg;
}

int main(void) {
    T_CHECK(pthread_key_create(&key, key_gone) == 0);
    T_CHECK(atexit(at_exit_1) == 0);
    T_CHECK(on_exit(at_exit_2, t_malloc(22)) == 0);
    for (int i = 0; i < 20; i++) t_join(t_start(work, NULL, 0));
    work(NULL);
    return 8;
}
