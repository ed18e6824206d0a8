// Asks for whole pages, which not every allocator hands out, and leaves what it got.
#include <malloc.h>
#include <stdlib.h>

int main(void) {
    void *pages = pvalloc(100), *page = valloc(100), *aligned = memalign(64, 100);
    return pages && page && aligned ? 4 : 5;
}
