// heirs BYTES LIMIT: takes BYTES and a quarter more, forks, and ends. The child waits until it is alone, and releases
// the small block and then the large one. Each time it prints how large a block it can have, of a job's LIMIT; before that,
// how large one could be at first.
#include "room.h"
#include <stdio.h>
#include <unistd.h>

// Waits for the collector, which settles a death in its next round, until so much can be had; what could be.
static size_t reaches(size_t wanted) {
    size_t had = 0;
    for (int i = 0; i < 1000 && had < wanted; i++) {
        usleep(10000);
        had = room_below(wanted + 2);
    }
    return had;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t bytes = strtoull(argv[1], 0, 10), limit = strtoull(argv[2], 0, 10);
    size_t all = room_below(limit + 1);
    void *volatile large = malloc(bytes), *volatile small = malloc(bytes / 4);
    size_t held = bytes + bytes / 4;
    pid_t parent = getpid();
    if (!large || !small) return 3;
    pid_t child = fork();
    if (child < 0) return 4;
    // Both have the blocks, and they are charged once.
    if (child) return room_below(limit) > all - held ? 5 : 0;
    for (int i = 0; i < 1000 && getppid() == parent; i++) usleep(10000);
    // The parent's end gives nothing back as long as its blocks live here.
    usleep(300000);
    size_t first = room_below(limit);
    free(small);
    size_t second = reaches(bytes / 4 + first);
    free(large);
    size_t third = reaches(all);
    printf("%zu %zu %zu %zu\n", all, first, second, third);
    return 0;
}
