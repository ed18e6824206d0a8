// A program that does nothing but call the allocator: what a recorder adds to it, it adds to a call.
//
//   churn THREADS CALLS [LIVE]
//
// Each thread keeps LIVE blocks (default 10000). A step gives one of them back, picked at random, and
// asks for a new one of a mixed small size: two calls. The median over stretches of 500 steps is
// printed, so that a stretch in which the thread was preempted does not count.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STRETCH = 500 };

struct worker {
    pthread_t thread;
    uint64_t seed, steps;
    size_t live;
    double *nanoseconds; // per call, one for each stretch
    size_t stretches;
};

static uint64_t next_random(uint64_t *state) {
    // xorshift64* (Marsaglia; Vigna)
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 2685821657736338717ull;
}

// Three quarters up to 128 bytes, most of the rest up to 1 KiB, a few up to 16 KiB.
static size_t pick_size(uint64_t r) {
    unsigned kind = r & 63;
    uint64_t x = r >> 8;
    if (kind < 48) return 8 + x % 121;
    if (kind < 62) return 129 + x % 896;
    return 1025 + x % 15360;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *work(void *argument) {
    struct worker *w = argument;
    void **blocks = calloc(w->live, sizeof *blocks);
    double start = now();
    for (uint64_t step = 0; step < w->steps; step++) {
        uint64_t r = next_random(&w->seed);
        void **place = &blocks[(r >> 32) % w->live];
        free(*place);
        *place = malloc(pick_size(r));
        *(volatile char *)*place = 1;
        if ((step + 1) % STRETCH == 0) {
            double end = now();
            w->nanoseconds[w->stretches++] = (end - start) / (2 * STRETCH);
            start = end;
        }
    }
    for (size_t i = 0; i < w->live; i++) free(blocks[i]);
    free(blocks);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    unsigned threads = argc > 1 ? strtoul(argv[1], 0, 0) : 1;
    uint64_t calls = argc > 2 ? strtoull(argv[2], 0, 0) : 10000000;
    size_t live = argc > 3 ? strtoull(argv[3], 0, 0) : 10000;
    struct worker *workers = calloc(threads, sizeof *workers);
    for (unsigned i = 0; i < threads; i++) {
        struct worker *w = &workers[i];
        w->seed = 0x9e3779b97f4a7c15ull * (i + 1);
        w->steps = calls / 2 / threads;
        w->live = live;
        w->nanoseconds = malloc((w->steps / STRETCH + 1) * sizeof(double));
        if (threads > 1) pthread_create(&w->thread, NULL, work, w);
    }
    if (threads == 1) work(workers);
    else for (unsigned i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < threads; i++) {
        struct worker *w = &workers[i];
        qsort(w->nanoseconds, w->stretches, sizeof(double), by_value);
        if (w->stretches) printf("%.2f\n", w->nanoseconds[w->stretches / 2]);
    }
    return 0;
}
