// service: whose memory it is, is known by function: main keeps 100 MiB and calls test1, which keeps 100 MiB, and test2 from two
// places, which keeps 100 MiB each time. All by malloc_wrapper, so that callers alone tell nothing. descend calls itself four
// times and keeps 1 MiB at its end; forgets frees at once what it makes, twice 1 MiB.
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline, noclone))
#define MIB ((size_t)1 << 20)

static void *volatile last;

APART static void *malloc_wrapper(size_t size) {
    last = malloc(size);
    return last;
}
APART static void test1(void) { memset(malloc_wrapper(100 * MIB), 1, 1); }
APART static void test2(void) { memset(malloc_wrapper(100 * MIB), 2, 1); }
APART static void descend(int deep) {
    if (deep == 0) {
        last = malloc(MIB);
        return;
    }
    descend(deep - 1);
    // It must not be a tail call.
    last = (char *)last + 0;
}
APART static void forgets(void) {
    for (int i = 0; i < 2; i++) {
        malloc_wrapper(MIB);
        free(last);
    }
}

int main(int argc, char **argv) {
    memset(malloc_wrapper(100 * MIB), 0, 1);
    test1();
    test2();
    last = NULL;
    test2();
    if (argc > 1 && strcmp(argv[1], "more") == 0) {
        descend(3);
        forgets();
    }
    last = NULL;
    return 0;
}
