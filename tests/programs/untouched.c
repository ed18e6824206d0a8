// What a program can see of the allocator: usable sizes, where blocks lie to one another, the allocator's own counts, and
// that the room behind a block is the program's to use.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 600 };
static char *blocks[COUNT];

int main(void) {
    struct mallinfo2 before = mallinfo2();
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = malloc(i * 7 % 3000);
        memset(blocks[i], 1, malloc_usable_size(blocks[i]));
    }
    for (size_t i = 0; i < COUNT; i += 3) {
        free(blocks[i]);
        blocks[i] = aligned_alloc(256, 256 * (1 + i % 4));
    }
    struct mallinfo2 after = mallinfo2();
    for (size_t i = 0; i < COUNT; i++)
        printf("%zu %td\n", malloc_usable_size(blocks[i]), blocks[i] - blocks[0]);
    printf("%zu in use, %zu free, %zu mapped\n", after.uordblks - before.uordblks, after.fordblks, after.hblkhd);
    return 0;
}
