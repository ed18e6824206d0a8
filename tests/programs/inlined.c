/* A function that the compiler puts into the one that calls it. */
#include <stdlib.h>

static inline __attribute__((always_inline)) void *grow(size_t size) {
    void *block = malloc(size);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

int main(void) {
    free(grow(4321));
    return 0;
}
