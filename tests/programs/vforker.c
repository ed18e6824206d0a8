// vfork: the child shares our memory, so what it allocates before exec or _exit is ours.
#include "truth.h"

int main(int argc, char **argv) {
    t_quiet = 1;
    if (argc > 1) {
        for (int i = 0; i < 40; i++) t_malloc((size_t)i);
        return 5;
    }
    for (volatile int i = 0; i < 30; i++) {
        void *volatile kept = t_malloc(64);
        pid_t pid = vfork();
        if (pid == 0) {
            kept = t_realloc(kept, 200);
            void *p = t_calloc(2, 50);
            t_free(p);
            if (i % 3 == 0) _exit(3);
            if (i % 3 == 1) { execl("/bin/true", "true", (char *)NULL); _exit(4); }
            execl(argv[0], argv[0], "again", (char *)NULL);
            _exit(4);
        }
        t_wait(pid, i % 3 == 0 ? 3 : i % 3 == 1 ? 0 : 5);
        t_free(kept);
    }
    return 0;
}
