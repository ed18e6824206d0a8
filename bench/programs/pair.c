// What a pair of malloc and free takes: pair THREADS PROCESSES PAIRS
//
// Each thread of each process makes and gives back one block of 64 bytes, over and over. The median over
// stretches of 1000 pairs is printed for each, so that a stretch in which it was preempted does not count.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STRETCH = 1000 };
static size_t pairs;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *work(void *unused) {
    (void)unused;
    size_t stretches = pairs / STRETCH;
    double *each = malloc(stretches * sizeof *each);
    for (size_t s = 0; s < stretches; s++) {
        double start = now();
        for (int i = 0; i < STRETCH; i++) {
            void *block = malloc(64);
            __asm__ volatile("" ::"r"(block) : "memory");
            free(block);
        }
        each[s] = (now() - start) / STRETCH;
    }
    qsort(each, stretches, sizeof *each, compare);
    char line[32];
    int length = snprintf(line, sizeof line, "%.3f\n", each[stretches / 2]);
    if (write(1, line, length) != length) abort();
    free(each);
    return NULL;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    int threads = atoi(words[1]), processes = atoi(words[2]);
    pairs = strtoull(words[3], NULL, 10);
    for (int i = 1; i < processes; i++)
        if (fork() == 0) break;
    pthread_t other[64];
    for (int i = 1; i < threads && i < 64; i++) pthread_create(&other[i], NULL, work, NULL);
    work(NULL);
    for (int i = 1; i < threads && i < 64; i++) pthread_join(other[i], NULL);
    while (wait(NULL) > 0) continue;
    return 0;
}
