// usable LIMIT BLOCK THREADS: fills LIMIT with blocks around BLOCK bytes from every function, in so many threads, and
// sums up what the allocator says that they have. That is never more than LIMIT. Then one block is resized up to the edge and
// down. Says the most that was had at one time, how often it was too much, and how often anything else was wrong.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t limit, block, threads;
static atomic_size_t held, most, over, wrong;
static pthread_barrier_t all;

static size_t chance(uint64_t *state, size_t below) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 33) % below;
}

static void note(void *made) {
    size_t now = atomic_fetch_add(&held, malloc_usable_size(made)) + malloc_usable_size(made);
    if (now > limit) atomic_fetch_add(&over, 1);
    for (size_t had = atomic_load(&most); now > had && !atomic_compare_exchange_weak(&most, &had, now);) {}
}

static void give_back(void *made) {
    atomic_fetch_sub(&held, malloc_usable_size(made));
    free(made);
}

static void *make(uint64_t *state) {
    size_t size = block - block / 4 + chance(state, block / 2);
    void *made = NULL;
    switch (chance(state, 5)) {
    case 0: return malloc(size);
    case 1: return calloc(1, size);
    case 2: return aligned_alloc(64, (size + 63) / 64 * 64);
    case 3: return memalign(4096, size);
    default: return posix_memalign(&made, 256, size) == 0 ? made : NULL;
    }
}

static void *fill(void *number) {
    size_t room = limit / (block / 2) + 16, count = 0;
    uint64_t state = (uintptr_t)number * 77 + 1;
    // Is charged, too.
    void **blocks = malloc(room * sizeof *blocks);
    if (blocks == NULL) exit(3);
    note(blocks);
    pthread_barrier_wait(&all);
    for (int round = 0; round < 3; round++) {
        for (void *made; count < room && (made = make(&state)) != NULL;) {
            note(made);
            memset(made, 3, 1);
            blocks[count++] = made;
        }
        pthread_barrier_wait(&all);
        // All were refused: no thread has room for one more.
        size_t keep = chance(&state, count + 1);
        while (count > keep) give_back(blocks[--count]);
        for (size_t i = 0; i < count; i++) {
            size_t before = malloc_usable_size(blocks[i]), wanted = 1 + chance(&state, 2 * block);
            atomic_fetch_sub(&held, before);
            void *moved = realloc(blocks[i], wanted);
            if (moved != NULL) blocks[i] = moved;
            note(blocks[i]);
            if (((char *)blocks[i])[0] != 3) atomic_fetch_add(&wrong, 1);
        }
        pthread_barrier_wait(&all);
    }
    while (count > 0) give_back(blocks[--count]);
    give_back(blocks);
    return NULL;
}

// What the other thread's blocks may be while they are resized is nobody else's trouble.
static atomic_int is_over;
static void *resize(void *unused) {
    (void)unused;
    void *one = malloc(1);
    for (int i = 0; i < 300; i++) {
        void *moved = realloc(one, limit / 2 - limit / 16);
        if (moved == NULL) atomic_fetch_add(&wrong, 1);
        else one = moved;
        moved = realloc(one, 1);
        if (moved != NULL) one = moved;
    }
    free(one);
    atomic_store(&is_over, 1);
    return NULL;
}

static void beside(void) {
    pthread_t other;
    void *volatile most_of_the_rest = malloc(limit / 8 * 3);
    if (most_of_the_rest == NULL || pthread_create(&other, NULL, resize, NULL) != 0) exit(4);
    while (!atomic_load(&is_over)) {
        void *volatile small = malloc(limit / 64);
        if (small == NULL) atomic_fetch_add(&wrong, 1);
        free(small);
    }
    pthread_join(other, NULL);
    free(most_of_the_rest);
}

// To the edge by steps; what does not fit leaves the block as it was.
static void grow(void) {
    size_t size = 100;
    char *one = malloc(size);
    memset(one, 1, size);
    for (size_t step = limit / 16; step > 1000; ) {
        char *moved = realloc(one, size + step);
        if (moved == NULL) {
            if (one[0] != 1 || one[size - 1] != 1) atomic_fetch_add(&wrong, 1);
            step /= 2;
            continue;
        }
        one = moved;
        if (one[0] != 1 || one[size - 1] != 1) atomic_fetch_add(&wrong, 1);
        size += step;
        one[size - 1] = 1;
        size_t now = malloc_usable_size(one);
        if (now > limit) atomic_fetch_add(&over, 1);
        if (now > atomic_load(&most)) atomic_store(&most, now);
    }
    printf("grown %zu ", size);
    void *small = realloc(one, 100);
    if (small == NULL) atomic_fetch_add(&wrong, 1);
    void *again = malloc(limit / 2);
    if (again == NULL) atomic_fetch_add(&wrong, 1);
    free(again);
    free(small);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    limit = strtoull(words[1], NULL, 10), block = strtoull(words[2], NULL, 10), threads = strtoull(words[3], NULL, 10);
    pthread_t other[64];
    pthread_barrier_init(&all, NULL, threads);
    for (size_t i = 1; i < threads; i++)
        if (pthread_create(&other[i], NULL, fill, (void *)i) != 0) return 2;
    fill(NULL);
    for (size_t i = 1; i < threads; i++) pthread_join(other[i], NULL);
    printf("filled %zu ", atomic_load(&most));
    beside();
    grow();
    printf("over %zu wrong %zu\n", atomic_load(&over), atomic_load(&wrong));
    return 0;
}
