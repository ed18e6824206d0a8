// Handlers of pthread_atfork that allocate, before the fork and after it in both; in children of a process whose threads
// allocate all the time. Ends with 0, each child with its number.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept[3];
static volatile int stop;

static void renew(int which, size_t size) {
    free(kept[which]);
    kept[which] = malloc(size);
}
static void before(void) { renew(0, 4001); }
static void in_parent(void) { renew(1, 4002); }
static void in_child(void) { renew(2, 4003); }

static void *busy(void *arg) {
    while (!stop) {
        void *p = malloc(100);
        __asm__ volatile("" ::"r"(p) : "memory");
        free(p);
    }
    return arg;
}

int main(void) {
    pthread_t threads[3];
    if (pthread_atfork(before, in_parent, in_child)) return 90;
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, busy, NULL)) return 91;
    for (int i = 0; i < 40; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            for (int j = 0; j < 3; j++) free(kept[j]);
            _exit(i);
        }
        if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != i) return 92;
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return 0;
}
