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
    return 0;
}
