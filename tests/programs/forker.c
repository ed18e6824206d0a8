// fork of every kind: three generations, from a thread, while other threads allocate, and fork followed by exec of ourselves.
#include "truth.h"
static int stop;
static char *self;

static void some(int n, size_t size) {
    for (int i = 0; i < n; i++) {
        void *p = t_malloc(size + (size_t)i);
        if (i % 4 == 0) t_free(p);
    }
}
static void *busy(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        void *p = t_malloc(t_random(&seed) % 2000);
        p = t_realloc(p, 1 + t_random(&seed) % 2000);
        t_free(p);
        for (volatile int i = 0; i < 300; i++) {}
    }
    return NULL;
}
static void *forks_in_thread(void *arg) {
    (void)arg;
    void *mine = t_malloc(4321);
    pid_t pid = t_fork();
    if (pid == 0) {
        t_free(mine);
        some(77, 7);
        exit(21);
    }
    t_wait(pid, 21);
    t_free(mine);
    return NULL;
}
static void generations(int depth) {
    void *p = t_malloc(111 * (size_t)depth);
    pid_t pid = t_fork();
    if (pid == 0) {
        t_free(p);
        some(100 * depth, 222);
        if (depth < 3) generations(depth + 1);
        else { truth_write(); execl(self, self, "grandchild", (char *)NULL); _exit(9); }
        exit(30 + depth);
    }
    t_wait(pid, depth < 3 ? 30 + depth : 40);
    p = t_realloc(p, 5);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc > 1) { t_quiet = 1; some(300, 333); return 40; }
    generations(1);
    pthread_t thread = t_start(forks_in_thread, NULL, 0);
    t_join(thread);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) threads[i] = t_start(busy, (void *)(i + 1), 0);
    for (int i = 0; i < 20; i++) {
        pid_t pid = t_fork_racing();
        if (pid == 0) { some(50 + i, 10); truth_write(); _exit(i); }
        t_wait(pid, i);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 3; i++) t_join(threads[i]);
    return 0;
}
