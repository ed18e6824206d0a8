// strict HOW: enters a sandbox in which little is left, then calls the allocator from two threads (made before, or after), and
// from a fork of itself where that is still allowed. HOW is `strict` (seccomp's own strict mode), `kill` or `trap` (a filter
// that kills the process, or sends SIGSYS, for whatever is not listed). Ends with 11, by the bare system call.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int is_free(size_t n) {
    for (size_t i = 0; i < 2000; i++) {
        void *p = malloc(n + i % 50);
        __asm__ volatile("" ::"r"(p) : "memory");
        free(p);
    }
    return 1;
}
static void *run(void *n) { return is_free((size_t)n) ? n : NULL; }

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int is_strict = !strcmp(argv[1], "strict");
    void *room = malloc(200000); // what the strict mode lets the allocator live on
    __asm__ volatile("" ::"r"(room) : "memory");
    free(room);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mprotect), ALLOW(madvise), ALLOW(write), ALLOW(exit), ALLOW(exit_group),
        ALLOW(clone), ALLOW(clone3), ALLOW(rseq), ALLOW(set_robust_list), ALLOW(futex), ALLOW(rt_sigprocmask), ALLOW(wait4), ALLOW(sched_getaffinity), ALLOW(getrandom), ALLOW(rt_sigaction),
        BPF_STMT(BPF_RET | BPF_K, strcmp(argv[1], "trap") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_TRAP)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (is_strict) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 3;
        is_free(20);
        syscall(SYS_exit, 11);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 3;
    is_free(20);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, (void *)100) || pthread_join(thread, NULL)) return 4;
    pid_t child = fork();
    if (child == 0) {
        is_free(300);
        _exit(5);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5) return 6;
    is_free(1000);
    _exit(11);
}
