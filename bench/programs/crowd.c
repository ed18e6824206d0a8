// A program whose heap is a crowd: many live blocks, any of which may be freed next. What reads such a tape
// has no use for what it saw last.
//
//   crowd CALLS [LIVE]
//
// Makes LIVE blocks (default 1000000) of 16 to 512 bytes. A step then gives one of them back, picked at
// random, and asks for another: two calls. The calls come from eight places in turn. The blocks are left
// at the end.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t next_random(uint64_t *state) {
    // xorshift64* (Marsaglia; Vigna)
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 2685821657736338717ull;
}

// Each is a place of its own to call from.
#define PLACE(n)                                                      \
    __attribute__((noinline)) static void *place_##n(size_t size) {   \
        char *block = malloc(size);                                   \
        *(volatile char *)block = n;                                  \
        return block;                                                 \
    }
PLACE(0) PLACE(1) PLACE(2) PLACE(3) PLACE(4) PLACE(5) PLACE(6) PLACE(7)

static void *(*const places[])(size_t) = {place_0, place_1, place_2, place_3, place_4, place_5, place_6, place_7};

static void *make(uint64_t r) { return places[(r >> 20) % 8](16 + r % 497); }

int main(int argc, char **argv) {
    uint64_t calls = argc > 1 ? strtoull(argv[1], 0, 0) : 11000000;
    size_t live = argc > 2 ? strtoull(argv[2], 0, 0) : 1000000;
    uint64_t seed = 0x9e3779b97f4a7c15ull;
    void **blocks = calloc(live, sizeof *blocks);
    for (size_t i = 0; i < live; i++) blocks[i] = make(next_random(&seed));
    for (uint64_t made = live + 1; made + 2 <= calls; made += 2) {
        uint64_t r = next_random(&seed);
        void **place = &blocks[(r >> 32) % live];
        free(*place);
        *place = make(r);
    }
    printf("%p\n", (void *)blocks);
    return 0;
}
