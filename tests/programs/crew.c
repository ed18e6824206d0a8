// crew THREADS [exec]: makes THREADS threads that live at the same time, every second of which never calls the allocator; with
// `exec` the same once more, as another program.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t all;

static void *work(void *number) {
    if ((size_t)number % 2) free(memset(malloc(100), 1, 100));
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    return NULL;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    size_t threads = strtoull(words[1], 0, 10);
    pthread_t *made = malloc(threads * sizeof *made);
    if (!made || pthread_barrier_init(&all, NULL, threads + 1)) return 3;
    for (size_t i = 0; i < threads; i++) if (pthread_create(&made[i], NULL, work, (void *)i)) return 4;
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    for (size_t i = 0; i < threads; i++) pthread_join(made[i], NULL);
    if (count > 2) {
        execv("/proc/self/exe", (char *[]){words[0], words[1], NULL});
        return 5;
    }
    return 0;
}
