// How much of a limit is left.
#pragma once
#include <stddef.h>
#include <stdlib.h>

// The largest block below `above` bytes that is granted.
static size_t room_below(size_t above) {
    size_t had = 0;
    while (had + 1 < above) {
        size_t size = had + (above - had) / 2;
        void *volatile block = malloc(size);
        free(block);
        if (block) had = size; else above = size;
    }
    return had;
}
