// Fills a budget to the brim, over and over: edge PROCESSES THREADS BLOCK LIMIT ROUNDS
//
// In each round every thread of every process takes blocks until it is refused. All together never have more than the
// limit. Once all were refused, one gives a block back and takes it again, which must be granted, and then asks for one
// more, which must not. Then all is given back. Says the least and the most that all had together in a round, and exits
// with 1 when anything was wrong.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
    pthread_barrier_t barrier;
    atomic_ulong held, over, wrong, chosen;
    unsigned long least, most;
};
static struct shared *all;
static unsigned long block, limit;
static int processes, threads, rounds;

// A block's first word leads to the one that was taken before.
struct held {
    struct held *before;
};

static int is_first(void) { return pthread_barrier_wait(&all->barrier) == PTHREAD_BARRIER_SERIAL_THREAD; }

static struct held *take(struct held *last) {
    struct held *one = malloc(block);
    if (one == NULL) return NULL;
    one->before = last;
    unsigned long now = atomic_fetch_add(&all->held, block) + block;
    if (now > limit) atomic_fetch_add(&all->over, 1);
    return one;
}

static struct held *give_back(struct held *last) {
    struct held *before = last->before;
    atomic_fetch_sub(&all->held, block);
    free(last);
    return before;
}

static void *fill(void *unused) {
    (void)unused;
    // Nobody takes what others need to make their threads.
    is_first();
    for (int round = 0; round < rounds; round++) {
        struct held *last = NULL;
        for (struct held *one; (one = take(last)) != NULL;) last = one;
        if (is_first()) {
            unsigned long held = atomic_load(&all->held);
            if (held < all->least) all->least = held;
            if (held > all->most) all->most = held;
        }
        is_first();
        if (last != NULL && atomic_exchange(&all->chosen, 1) == 0) {
            last = give_back(last);
            struct held *again = take(last);
            if (again == NULL) atomic_fetch_add(&all->wrong, 1);
            else last = again;
            void *more = malloc(block);
            if (more != NULL) atomic_fetch_add(&all->wrong, 1);
            free(more);
        }
        is_first();
        atomic_store(&all->chosen, 0);
        while (last != NULL) last = give_back(last);
        is_first();
    }
    return NULL;
}

static int work(void) {
    pthread_t other[64];
    for (int i = 1; i < threads; i++)
        if (pthread_create(&other[i], NULL, fill, NULL) != 0) _exit(3);
    fill(NULL);
    for (int i = 1; i < threads; i++) pthread_join(other[i], NULL);
    return 0;
}

int main(int count, char **words) {
    if (count != 6) return 2;
    processes = atoi(words[1]), threads = atoi(words[2]), rounds = atoi(words[5]);
    block = strtoul(words[3], NULL, 10), limit = strtoul(words[4], NULL, 10);
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || threads > 64) return 2;
    all->least = -1UL;
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&all->barrier, &shared, processes * threads);
    for (int i = 1; i < processes; i++) {
        pid_t child = fork();
        if (child < 0) return 2;
        if (child == 0) _exit(work());
    }
    work();
    int failed = 0, status;
    for (int i = 1; i < processes; i++) failed |= wait(&status) < 0 || status != 0;
    dprintf(1, "least %lu most %lu over %lu wrong %lu\n", all->least, all->most, atomic_load(&all->over),
            atomic_load(&all->wrong));
    return failed || atomic_load(&all->over) != 0 || atomic_load(&all->wrong) != 0;
}
