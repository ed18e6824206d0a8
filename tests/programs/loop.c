// loop PROGRESS THREADS MILLISECONDS PAUSE [LEAST]: allocates and frees until the time is over and each thread has made LEAST
// calls, then prints "loop done" and exits with 7.
//
// PROGRESS is a file that is mapped shared, so what stands there survives SIGKILL: word 0 the pid (last: everything is ready),
// then per thread a line of 8 words: calls begun, calls done. The sizes of thread k are k modulo 16. PAUSE spins between calls.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static volatile uint64_t *progress;
static uint64_t end, least;
static int pause_for;
static uint64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000; }

#define CALL(call) do { p[0]++; __asm__ volatile("" ::: "memory"); call; __asm__ volatile("" ::: "memory"); p[1]++; \
    for (volatile int w = 0; w < pause_for; w++) {} } while (0)
static void *work(void *arg) {
    uint64_t k = (uint64_t)(uintptr_t)arg;
    volatile uint64_t *p = progress + 8 * (k + 1);
    void *slots[64] = {NULL};
    for (uint64_t i = 0; now() < end || p[0] < least; i++) {
        size_t size = 16 * (1 + i * 2654435761u % 97) + k;
        void **slot = &slots[i % 64];
        if (i % 7 == 3 && *slot) { CALL(*slot = realloc(*slot, size)); continue; }
        if (*slot) CALL(free(*slot));
        CALL(*slot = malloc(size));
        __asm__ volatile("" ::"r"(*slot) : "memory");
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0666), threads = atoi(argv[2]);
    if (fd < 0 || ftruncate(fd, 0) || ftruncate(fd, 4096)) return 3;
    progress = (volatile uint64_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    end = now() + (uint64_t)atoi(argv[3]);
    pause_for = atoi(argv[4]);
    if (argc > 5) least = strtoull(argv[5], NULL, 10);
    pthread_t t[16];
    for (int k = 0; k < threads && k < 16; k++) pthread_create(&t[k], NULL, work, (void *)(uintptr_t)k);
    progress[0] = (uint64_t)getpid();
    for (int k = 0; k < threads && k < 16; k++) pthread_join(t[k], NULL);
    return write(1, "loop done\n", 10) == 10 ? 7 : 8;
}
