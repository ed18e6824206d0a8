// filtered HOW PROGRAM …: becomes PROGRAM in a filter that it inherits. HOW is `service` (what a service manager lets ordinary services
// do; the rest, such as mounting and tracing, answers EPERM), one call that answers EPERM: `madvise`, `shared` (mapping a file
// to share it), or several at once: `asking` (by which the library asks who it is, and what it may do).
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define REFUSED(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), REFUSE
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define INSTALL(code) install(code, sizeof(code) / sizeof *(code))

static int install(struct sock_filter *code, size_t length) {
    struct sock_fprog program = {(unsigned short)length, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    // What is not in @system-service.
    struct sock_filter service[] = {
        LOAD(nr), REFUSED(mount), REFUSED(umount2), REFUSED(pivot_root), REFUSED(ptrace), REFUSED(process_vm_readv), REFUSED(process_vm_writev),
        REFUSED(kexec_load), REFUSED(init_module), REFUSED(finit_module), REFUSED(delete_module), REFUSED(reboot), REFUSED(swapon),
        REFUSED(swapoff), REFUSED(settimeofday), REFUSED(clock_settime), REFUSED(bpf), REFUSED(perf_event_open), REFUSED(userfaultfd),
        REFUSED(unshare), REFUSED(setns), REFUSED(chroot), REFUSED(iopl), REFUSED(ioperm), REFUSED(syslog), REFUSED(acct), REFUSED(quotactl),
        REFUSED(vhangup), REFUSED(personality), REFUSED(pidfd_getfd), REFUSED(kcmp), ALLOW};
    struct sock_filter madvise_[] = {LOAD(nr), REFUSED(madvise), ALLOW};
    struct sock_filter shared[] = {LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3), LOAD(args[3]),
                                   BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1), REFUSE, ALLOW};
    struct sock_filter asking[] = {LOAD(nr), REFUSED(getppid), REFUSED(gettid), REFUSED(readlink), REFUSED(prlimit64),
                                   REFUSED(access), ALLOW};
    int failed = !strcmp(argv[1], "service") ? INSTALL(service)
                 : !strcmp(argv[1], "madvise") ? INSTALL(madvise_)
                 : !strcmp(argv[1], "shared") ? INSTALL(shared)
                                              : INSTALL(asking);
    if (failed) return 3;
    execv(argv[2], argv + 2);
    return 4;
}
