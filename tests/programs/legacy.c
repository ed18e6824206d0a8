// legacy BLOCKS BYTES [ROUNDS]: takes BLOCKS blocks of BYTES each, forks, and ends. The child waits until it is alone, and ROUNDS
// times lets go of an inherited block and takes one of its own in its place, without a pause. Fails where one is refused.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t blocks = strtoull(argv[1], 0, 10), bytes = strtoull(argv[2], 0, 10);
    size_t rounds = argc > 3 ? strtoull(argv[3], 0, 10) : blocks;
    char **held = malloc(blocks * sizeof *held);
    if (!held) return 3;
    for (size_t i = 0; i < blocks; i++) if (!(held[i] = malloc(bytes))) return 3;
    pid_t parent = getpid(), child = fork();
    if (child < 0) return 4;
    if (child) return 0;
    for (int i = 0; i < 1000 && getppid() == parent; i++) usleep(10000);
    usleep(300000);
    size_t refused = 0;
    for (size_t i = 0; i < rounds; i++) {
        free(held[i % blocks]);
        if (!(held[i % blocks] = malloc(bytes))) refused++;
    }
    printf("%zu\n", refused);
    return 0;
}
