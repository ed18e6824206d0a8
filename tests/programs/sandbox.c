// Installs a seccomp filter that allows little more than the allocator's own system calls and kills the process for any other.
#include "truth.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(madvise), ALLOW(write), ALLOW(openat), ALLOW(close), ALLOW(getpid),
        ALLOW(exit_group), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    for (int i = 0; i < 100; i++) t_malloc((size_t)i);
    T_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (argc > 1 && !strcmp(argv[1], "syscall")) T_CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else T_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    for (int i = 0; i < 100000; i++) t_free(t_malloc((size_t)i % 5000));
    for (int i = 0; i < 50; i++) t_free(t_malloc(1000000));
    t_malloc(1234);
    truth_write();
    _exit(14);
}
