// A daemon of the old school: forks twice, makes a session, closes every descriptor, changes to /, and outlives us.
#include "truth.h"
#include <sys/stat.h>
#include <time.h>

int main(void) {
    void *p = t_malloc(1000);
    pid_t pid = t_fork();
    if (pid == 0) {
        t_malloc(11);
        T_CHECK(setsid() > 0);
        if (t_fork() != 0) { truth_write(); _exit(0); }
        for (int fd = 0; fd < 4096; fd++) close(fd);
        if (chdir("/")) _exit(98);
        umask(0);
        t_free(p);
        for (int i = 0; i < 20; i++) {
            struct timespec nap = {0, 20000000};
            for (int k = 0; k < 500; k++) {
                void *q = t_malloc((size_t)(i * k % 900));
                if (k % 50) t_free(q);
            }
            nanosleep(&nap, NULL);
        }
        exit(13);
    }
    t_wait(pid, 0);
    t_free(p);
    return 0;
}
