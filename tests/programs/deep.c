// deep BYTES THREADS BLOCK: takes a block of BLOCK bytes, which has a mapping of its own, then has THREADS threads beside
// the first one; each of all touches so many bytes of its stack, and stays for two seconds.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t bytes;
static pthread_barrier_t all;

static __attribute__((noinline)) void deepen(size_t left) {
    volatile char page[4096];
    page[0] = page[4095] = 1;
    if (left > sizeof page) deepen(left - sizeof page);
    // What comes after the call keeps the page.
    page[1] = page[0];
}

static void *live(void *unused) {
    void *volatile block = malloc(100);
    free(block);
    deepen(bytes);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    return unused;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    bytes = strtoull(words[1], NULL, 10);
    int threads = atoi(words[2]);
    size_t size = strtoull(words[3], NULL, 10);
    char *block = malloc(size);
    if (block == NULL) return 9;
    memset(block, 1, size);
    pthread_barrier_init(&all, NULL, threads + 1);
    pthread_t others[64];
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&others[i], NULL, live, NULL) != 0) return 3;
    }
    deepen(bytes);
    pthread_barrier_wait(&all);
    sleep(2);
    pthread_barrier_wait(&all);
    for (int i = 0; i < threads; i++) pthread_join(others[i], NULL);
    free(block);
    return 0;
}
