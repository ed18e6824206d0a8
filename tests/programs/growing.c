// growing STEPS PAUSE: the heap grows in steps, with a pause of PAUSE milliseconds after each, and nothing is freed. Half of
// the steps are a second thread's, whose memory is made writable out of a reserve. No memory is mapped by the program itself.
#include "truth.h"
static int steps, milliseconds;

static void *grow(void *arg) {
    for (int step = 0; step < steps / 2; step++) {
        // More than glibc takes at once from brk or a reserve; then a block that gets a mapping of its own.
        for (int i = 0; i < 16; i++) t_malloc(10000);
        t_malloc(300000 + (size_t)step);
        usleep((useconds_t)milliseconds * 1000);
    }
    return arg;
}

int main(int argc, char **argv) {
    T_CHECK(argc == 3);
    steps = atoi(argv[1]);
    milliseconds = atoi(argv[2]);
    grow(NULL);
    t_join(t_start(grow, NULL, 0));
    return 0;
}
