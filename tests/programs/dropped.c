// dropped MODE FOLDER: a program that gives up what a recorder might have relied on, and goes on allocating, in threads and children.
//   root    the file system and the user: chroot to FOLDER, which is empty, then another user (needs root)
//   limits  descriptors, address space and unlocked pages
#include "truth.h"
#include <sys/mman.h>
#include <sys/resource.h>

static void give_up_root(const char *folder) {
    T_CHECK(chroot(folder) == 0 && chdir("/") == 0);
    T_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    T_CHECK(open("/proc/self/maps", O_RDONLY) < 0);
}
static void limit(int what, rlim_t value) {
    struct rlimit limit = {value, value};
    T_CHECK(setrlimit(what, &limit) == 0);
}
static void tighten(void) {
    limit(RLIMIT_NOFILE, 4);
    limit(RLIMIT_AS, (rlim_t)384 << 20);
    limit(RLIMIT_CORE, 0);
    mlockall(MCL_CURRENT);
}
static void some(int n) {
    for (int i = 0; i < n; i++) {
        void *p = t_malloc((size_t)i % 3000);
        if (i % 50) t_free(p);
    }
}
static void *work(void *arg) { some(5000); return arg; }

int main(int argc, char **argv) {
    T_CHECK(argc > 2 && getenv("TRUTH"));
    t_fd = t_open(getenv("TRUTH"));
    some(100);
    if (!strcmp(argv[1], "root")) give_up_root(argv[2]);
    else tighten();
    some(20000);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = t_start(work, NULL, 0);
    for (int i = 0; i < 4; i++) t_join(threads[i]);
    for (int i = 0; i < 3; i++) {
        pid_t pid = t_fork();
        if (pid == 0) { some(3000); exit(10 + i); }
        t_wait(pid, 10 + i);
    }
    return 0;
}
