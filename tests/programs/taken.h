// What programs share that take memory by many ways: a block that is touched, a word of how much it was, and time in which
// somebody may look.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static inline void touch(volatile char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE) from[at] = (char)(at >> 12 | 1);
}

// One MiB by malloc; whether it was given.
static inline int take_block(void) {
    char *block = malloc(MIB);
    if (block == NULL) return 0;
    touch(block, MIB);
    return 1;
}

static inline size_t take_blocks(size_t mib) {
    size_t taken = 0;
    while (taken < mib && take_block()) taken++;
    return taken;
}

// Tells how much was taken, in MiB, and stays for a while. No stdio: it may be told where that can't be used.
static inline void tell(size_t mib, unsigned milliseconds) {
    char line[40];
    int length = snprintf(line, sizeof line, "held %zu\n", mib);
    if (write(1, line, (size_t)length) != length) _exit(8);
    usleep(milliseconds * 1000);
}
