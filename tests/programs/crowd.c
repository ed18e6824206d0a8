// crowd THREADS PROCESSES CALLS: every thread of every process makes CALLS pairs of malloc and free, waits until all
// have done so and a while longer, and makes them again. So all are alive at once, and each has written something by
// then, and what is taken for gone is not.
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int threads, processes, calls;
static pthread_barrier_t *all;

static void work(void) {
    for (int i = 0; i < calls; i++) {
        volatile char *p = malloc(16 + (size_t)i % 50);
        if (!p) _exit(1);
        *p = 1;
        free((void *)p);
    }
}

static void *run(void *arg) {
    work();
    pthread_barrier_wait(all);
    usleep(200000);
    work();
    return arg;
}

static int process(void) {
    static pthread_t ids[20000];
    pthread_attr_t small;
    if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 64 << 10)) return 2;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], &small, run, NULL)) return 3;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return 0;
}

int main(int count, char **words) {
    pthread_barrierattr_t across;
    int failed = 0, status;
    if (count != 4) return 2;
    threads = atoi(words[1]);
    processes = atoi(words[2]);
    calls = atoi(words[3]);
    all = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (threads > 20000 || all == MAP_FAILED) return 2;
    if (pthread_barrierattr_init(&across) || pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED)) return 2;
    if (pthread_barrier_init(all, &across, (unsigned)(threads * processes))) return 2;
    if (processes == 1) return process();
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0) return 4;
        if (pid == 0) _exit(process());
    }
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}
