<<<<<<< HEAD
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
=======
/* A small service that never gives back: main takes 100 MB in blocks of 1 MB, test1 takes 100 MB, and test2 is called from
   two places and takes 100 MB each time. Prints what it took in bytes. */
#include <stdio.h>
#include <stdlib.h>

enum { MEGABYTE = 1000000, BLOCKS = 100 };

static void *kept[4 * BLOCKS];
static int blocks;

/* No call stands at the end of a function, where it might become a jump. */
__attribute__((noinline)) int test1(void) {
    for (int i = 0; i < BLOCKS; i++)
        kept[blocks++] = malloc(MEGABYTE);
    return blocks;
}

__attribute__((noinline)) int test2(void) {
    for (int i = 0; i < BLOCKS; i++)
        kept[blocks++] = calloc(1, MEGABYTE);
    return blocks;
}

int main(void) {
    for (int i = 0; i < BLOCKS; i++)
        kept[blocks++] = malloc(MEGABYTE);
    int sum = test1();
    sum += test2();
    sum += test2();
    for (int i = 0; i < blocks; i++)
        if (!kept[i])
            return 1;
    printf("%lld\n", (long long)blocks * MEGABYTE + 0 * sum);
>>>>>>> sites
    return 0;
}
