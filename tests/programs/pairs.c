// One thread, PAIRS pairs of malloc and free and nothing else: what a call costs, counted in instructions.
#include <stdlib.h>

int main(int argc, char **argv) {
    unsigned long pairs = argc > 1 ? strtoul(argv[1], 0, 0) : 100000;
    for (unsigned long i = 0; i < pairs; i++) {
        char *volatile block = malloc(16 + i % 100);
        free(block);
    }
    return 0;
}
