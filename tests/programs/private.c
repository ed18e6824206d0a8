// An executable with an allocator under a private name, as Rust programs with jemalloc have, beside libc's.
#include <stdlib.h>
static char pool[1 << 16];
static size_t used;
__attribute__((noinline)) void *_rjem_malloc(size_t n) { return pool + (used += (n + 15) / 16 * 16) - n; }

int main(void) {
    for (size_t i = 0; i < 300; i++) {
        void *theirs = _rjem_malloc(i % 7 + 1), *p = malloc(i);
        __asm__ volatile("" ::"r"(theirs), "r"(p) : "memory");
        free(p);
    }
    return 0;
}
