// A program whose calls are spread unevenly over its time, in the way that its argument names:
//   startup   builds a table at once and then rests
//   slow      makes nearly all of its calls at once, and then leaks a little now and then
//   burst     holds much for a moment of its time, in most of its calls
//   turns     children one after the other, each with a block of 1,000,000 bytes
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
static void *volatile sink;

static void rest(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

NOINLINE static void build(void) {
    for (int i = 0; i < 2000; i++) sink = malloc(500);
}

NOINLINE static void leak(void) { sink = malloc(5000); }

NOINLINE static void spend(int n) {
    for (int i = 0; i < n; i++) {
        void *block = malloc(100);
        sink = block;
        free(block);
    }
}

NOINLINE static void burst(void) {
    static void *held[20000];
    for (int i = 0; i < 20000; i++) held[i] = malloc(1000);
    rest(150);
    for (int i = 0; i < 20000; i++) free(held[i]);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "startup")) {
        build();
        rest(1000);
    } else if (!strcmp(how, "slow")) {
        spend(50000);
        for (int i = 0; i < 100; i++) {
            leak();
            rest(10);
        }
    } else if (!strcmp(how, "burst")) {
        rest(500);
        burst();
        rest(900);
        spend(100);
    } else if (!strcmp(how, "turns")) {
        for (int i = 0; i < 8; i++) {
            pid_t child = fork();
            if (child == 0) {
                sink = malloc(1000000);
                rest(20);
                exit(0);
            }
            waitpid(child, NULL, 0);
        }
    }
    return 0;
}
