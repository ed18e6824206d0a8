// gated LIBRARY: makes the calls that heaptape wraps, each for the first time, while another thread is in the constructor of
// gate.c and so holds the loader's lock, until all these calls have been made. Each is made in its own process, too. Leaves with 7.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

extern char **environ;
static void *load(void *library) { return dlopen(library, RTLD_NOW); }
static void *nothing(void *arg) { return arg; }
static int nothing_c11(void *arg) { (void)arg; return 0; }
static void check(int is_so, int line) {
    if (is_so) return;
    dprintf(2, "gated.c:%d\n", line);
    _exit(99);
}
#define CHECK(c) check((c) != 0, __LINE__)

static pid_t child_that(int (*act)(void)) {
    pid_t pid = fork();
    if (pid == 0) _exit(act());
    return pid;
}
static char *const argv[] = {"true", NULL};
static int by_execve(void) { return execve("/bin/true", argv, environ); }
static int by_execv(void) { return execv("/bin/true", argv); }
static int by_execvp(void) { return execvp("true", argv); }
static int by_execl(void) { return execl("/bin/true", "true", NULL); }
static int by_c99(void) { _Exit(0); }
static int by_quick(void) { quick_exit(0); }

int main(int argc, char **argv_of_main) {
    int gate[2], told[2], status;
    char byte = 1, text[40];
    if (argc < 2 || pipe(gate) || pipe(told)) return 2;
    snprintf(text, sizeof text, "%d,%d", gate[0], told[1]);
    setenv("GATE", text, 1);
    pthread_t loader;
    pthread_create(&loader, NULL, load, argv_of_main[1]);
    CHECK(read(told[0], &byte, 1) == 1);
    unsetenv("GATE");

    int (*const ways[])(void) = {by_execve, by_execv, by_execvp, by_execl, by_c99, by_quick};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t pid = child_that(ways[i]);
        siginfo_t info;
        switch (i) {
        case 0: CHECK(waitpid(pid, &status, 0) == pid && status == 0); break;
        case 1: CHECK(wait4(pid, &status, 0, NULL) == pid && status == 0); break;
        case 2: CHECK(wait(&status) == pid && status == 0); break;
        case 3: CHECK(wait3(&status, 0, NULL) == pid && status == 0); break;
        default: CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED) == 0 && info.si_status == 0);
        }
    }
    pid_t pid;
    CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_CORE, &limit) == 0 && setrlimit(RLIMIT_CORE, &limit) == 0);
    CHECK(prlimit(0, RLIMIT_CORE, NULL, &limit) == 0);
    CHECK(prctl(PR_SET_NAME, "gated") == 0 && syscall(SYS_getppid) > 0);
    mlockall(0);
    CHECK(mallopt(M_PERTURB, 0) == 1);
    malloc_trim(0);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && mprotect(page, 4096, PROT_NONE) == 0 && munmap(page, 4096) == 0);
    CHECK(shmdt(page) == -1 && errno == EINVAL);
    pthread_t thread;
    thrd_t other;
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(thrd_create(&other, nothing_c11, NULL) == thrd_success && thrd_join(other, NULL) == thrd_success);
    free(reallocarray(NULL, 3, 5));

    CHECK(write(gate[1], &byte, 1) == 1);
    void *library;
    pthread_join(loader, &library);
    CHECK(library && dlclose(library) == 0);
    return 7;
}
