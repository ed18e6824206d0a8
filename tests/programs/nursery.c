// nursery BLOCKS CHILDREN: holds many blocks while it forks children one after the other; each ends some of what it inherited,
// makes and frees its own, and leaves with 3. Four of them live on to the end.
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
enum { TOUCHED = 50, LASTING = 4 };

static void child(void **blocks, long count, long k) {
    for (long i = 0; i < TOUCHED; i++) {
        long at = (k * 7919 + i * 104729) % count;
        free(blocks[at]);
        blocks[at] = malloc((size_t)(20 + i));
    }
    _exit(3);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long count = atol(argv[1]), children = atol(argv[2]);
    void **blocks = malloc((size_t)count * sizeof *blocks);
    for (long i = 0; i < count; i++) blocks[i] = malloc((size_t)(16 + i % 40));
    int gate[2];
    if (pipe(gate)) return 4;
    for (long k = 0; k < children; k++) {
        pid_t pid = fork();
        if (pid < 0) return 5;
        if (pid == 0) {
            char c;
            close(gate[1]);
            if (k < LASTING && read(gate[0], &c, 1)) _exit(6);
            child(blocks, count, k);
        }
        int status;
        if (k >= LASTING && (waitpid(pid, &status, 0) != pid || status != 3 << 8)) return 7;
        // The parent's blocks change as well, so that each child inherits others.
        for (long i = 0; i < TOUCHED; i++) {
            long at = (k * 6007 + i * 15013) % count;
            free(blocks[at]);
            blocks[at] = malloc((size_t)(30 + i));
        }
    }
    close(gate[1]);
    for (long k = 0; k < LASTING && k < children; k++) {
        int status;
        if (wait(&status) < 0 || status != 3 << 8) return 8;
    }
    return 0;
}
