// drip HOW: heap calls and time, or processes, go apart. HOW is "leak": 100,000 temporary blocks at once, then 150 of 5000 bytes, one
// every 10 ms, that nobody frees; "table": 2000 blocks of 100 bytes at once that stay, then a second of sleep; "children N": so
// many children, one after the other, which keep blocks of 700 bytes: the first 40 at once, each other one 8 all through its run.
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))

static void *volatile last;

APART void drop(void) { last = malloc(5000); }
APART void fill(void) {
    for (int i = 0; i < 2000; i++) last = malloc(100);
}
APART void keep(int blocks, int each_after) {
    for (int i = 0; i < blocks; i++) {
        last = malloc(700);
        for (int k = 0; k < each_after; k++) free(last = malloc(60));
    }
}
static void pause_for(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {}
}
static void leak(void) {
    for (int i = 0; i < 100000; i++) free(last = malloc(60));
    for (int i = 0; i < 150; i++) {
        drop();
        pause_for(10);
    }
}
static void children(int n) {
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            keep(i == 0 ? 40 : 8, i == 0 ? 0 : 50);
            for (int k = 0; i == 0 && k < 4000; k++) free(last = malloc(60));
            _exit(0);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || status != 0) _exit(99);
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(how, "leak") == 0) leak();
    if (strcmp(how, "table") == 0) {
        fill();
        pause_for(1000);
    }
    if (strcmp(how, "children") == 0) children(n);
    return 0;
}
