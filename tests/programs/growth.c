// growth LIMIT: one block is resized up to the edge of LIMIT and down, and what is left over is taken each time.
// Prints how often something was wrong. What the program has beside its blocks is found out first.
#include "room.h"
#include <stdio.h>
#include <string.h>

static unsigned long long state = 1;

static size_t chance(size_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
}

int main(int count, char **words) {
    if (count != 2) return 2;
    size_t room = room_below(strtoull(words[1], NULL, 10) + 1), size = 1;
    char *volatile block = malloc(size);
    int wrong = 0;
    for (int round = 0; round < 200; round++) {
        size_t wanted = 1 + chance(round % 4 ? room : 4096);
        char *moved = realloc(block, wanted);
        if (moved == NULL) {
            wrong++;
            continue;
        }
        block = moved, size = wanted;
        block[0] = block[size - 1] = 7;
        // One byte more than there is fails, and leaves the block as it was; to the byte it fits.
        if (realloc(block, room + 1) != NULL) return 9;
        wrong += block[0] != 7 || block[size - 1] != 7;
        void *rest = malloc(room - size);
        wrong += rest == NULL && room > size;
        void *volatile more = malloc(1);
        wrong += more != NULL;
        free(more);
        free(rest);
        void *all = calloc(room - size, 1);
        wrong += all == NULL && room > size;
        free(all);
    }
    free(block);
    block = malloc(room);
    wrong += block == NULL;
    free(block);
    dprintf(1, "%d\n", wrong);
    return 0;
}
