// 64 children at once: all start, wait for one another, free inherited blocks, make their own, leave in different ways.
#include "truth.h"
enum { CHILDREN = 64, INHERITED = 50 };

int main(void) {
    void *blocks[INHERITED];
    pid_t pids[CHILDREN];
    int gate[2];
    for (int i = 0; i < INHERITED; i++) T_CHECK((blocks[i] = t_malloc(100 + (size_t)i)));
    T_CHECK(pipe(gate) == 0);
    for (int k = 0; k < CHILDREN; k++) {
        pids[k] = t_fork();
        T_CHECK(pids[k] >= 0);
        if (pids[k] == 0) {
            char c;
            close(gate[1]);
            T_CHECK(read(gate[0], &c, 1) == 0);
            t_quiet = 1;
            for (int i = 0; i < INHERITED; i += 2) t_free(blocks[i]);
            blocks[1] = t_realloc(blocks[1], 1000 + (size_t)k);
            for (int i = 0; i < 200 + k; i++) {
                void *p = t_malloc((size_t)(i * 13 % 700));
                if (i % 3 == 0) t_free(p);
            }
            if (k % 3 == 0) { truth_write(); _exit(k); }
            if (k % 3 == 1) exit(k);
            return k;
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int k = 0; k < CHILDREN; k++) t_wait(pids[k], k);
    t_quiet = 1;
    for (int i = 0; i < INHERITED; i++) t_free(blocks[i]);
    return 0;
}
