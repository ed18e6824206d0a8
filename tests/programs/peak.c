// One thread, no libc calls of its own: the whole recording is known, peak and end too.
#include "truth.h"
enum { BLOCKS = 20000 };
static void *blocks[BLOCKS];

int main(void) {
    uint64_t seed = 99;
    t_quiet = 1;
    for (int wave = 1; wave <= 5; wave++) {
        int n = wave == 3 ? BLOCKS : BLOCKS / wave / 2;
        for (int i = 0; i < n; i++) {
            size_t size = t_random(&seed) % (size_t)(400 * wave);
            if (blocks[i] && i % 2) blocks[i] = t_realloc(blocks[i], size + 1);
            else { t_free(blocks[i]); blocks[i] = t_malloc(size); }
        }
        for (int i = 0; i < n; i++) if (t_random(&seed) % 4) { t_free(blocks[i]); blocks[i] = NULL; }
    }
    return 0;
}
