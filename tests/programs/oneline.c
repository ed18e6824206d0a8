// oneline: keeps two blocks of 1 MiB that one function makes for two calls in one line, of which each has an address of its own.
#include <stdlib.h>
#define APART __attribute__((noinline, noclone))
#define MIB ((size_t)1 << 20)

static void *volatile kept[2];

APART static void malloc_wrapper(int n) { kept[n] = malloc(MIB); }
APART static void test2(void) { malloc_wrapper(0); malloc_wrapper(1); kept[0] = kept[0]; }

int main(void) {
    test2();
    return kept[1] == NULL;
}
