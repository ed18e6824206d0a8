// A hundred blocks of pvalloc that are never freed: where the allocator lacks it they are libc's, and only libc knows them.
#include <malloc.h>
#include <stdlib.h>

int main(void) {
    for (int i = 0; i < 100; i++) {
        char *p = pvalloc(10);
        if (!p) return 9;
        *p = 1;
    }
    return 0;
}
