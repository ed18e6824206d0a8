// sanitized [fault]: 500 blocks that come and go; with `fault` one of them is read after it was freed. Ends with 3.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    (void)argv;
    for (size_t i = 0; i < 500; i++) {
        void *p = malloc(i);
        __asm__ volatile("" ::"r"(p) : "memory");
        free(p);
    }
    volatile char *p = calloc(1, 10);
    if (argc > 1) free((void *)p);
    int zero = p[0];
    if (argc == 1) free((void *)p);
    return 3 + (zero && argc == 1);
}
