// An executable with a malloc for itself alone: the libraries that it loads go on using libc's.
#include <stdlib.h>
#include <string.h>
static char pool[1 << 16];
static size_t used;
__attribute__((visibility("hidden"), noinline)) void *malloc(size_t n) { return pool + (used += (n + 15) / 16 * 16) - n; }

int main(void) {
    for (size_t i = 0; i < 300; i++) {
        void *own = malloc(i % 7 + 1);
        char *libcs = strdup("text");
        __asm__ volatile("" ::"r"(own), "r"(libcs) : "memory");
        free(libcs);
    }
    return 0;
}
