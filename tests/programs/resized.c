// resized MIB BESIDE TIMES: holds BESIDE MiB, and a block of MIB MiB that is resized up and down by some pages, so often. All of it
// is written to. Ends with 1 where a size is refused.
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t size = strtoull(argv[1], NULL, 10) << 20, beside = strtoull(argv[2], NULL, 10) << 20;
    char *other = malloc(beside), *block = malloc(size);
    if (other == NULL || block == NULL) return 1;
    memset(other, 1, beside);
    memset(block, 1, size);
    for (int i = 0; i < atoi(argv[3]); i++) {
        size_t now = size + 4096 * (size_t)(i % 5);
        char *moved = realloc(block, now);
        if (moved == NULL) return 1;
        block = moved;
        memset(block, 1, now);
    }
    free(block);
    free(other);
    return 0;
}
