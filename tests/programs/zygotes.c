// zygotes COUNT FOLDER [in-turn]: what a browser's sandbox does, COUNT times at once, or one after the other, which gives the same
// namespaces to several. Each zygote is process 1 of user and pid namespaces of
// its own, goes into FOLDER as its root, where there is no /proc, and forks children of every kind below: by libc and behind its
// back, with threads, in a filter that kills for what is not listed, in namespaces once more, ending in odd orders. Inner pids
// are the same in all of them. Each process writes its line with the number that the outermost namespace knows it by.
#include "truth.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
enum { KINDS = 9, SHORTS = 25 };

static int proc; // the outer /proc, whatever the root is

// The number by which the outermost namespace knows the calling process.
static uint64_t outer_pid(void) {
    char text[24] = {0};
    T_CHECK(readlinkat(proc, "self", text, sizeof text - 1) > 0);
    return (uint64_t)atol(text);
}
static void nap(unsigned ms) {
    struct timespec time = {0, (long)ms * 1000000};
    nanosleep(&time, NULL);
}
static void work(int n, size_t size) {
    for (int i = 0; i < n; i++) {
        void *p = t_malloc(size + (size_t)i % 100);
        if (i % 5 == 0) p = t_realloc(p, size * 2);
        if (i % 9) t_free(p);
    }
}
static void *works(void *size) { work(700, (size_t)size); nap((size_t)size % 7); return NULL; }
static void *works_little(void *size) { work(6, (size_t)size); return NULL; }

// A few threads at once, and many short ones one after the other.
static void threads(size_t size) {
    pthread_t some[3];
    for (size_t i = 0; i < 3; i++) some[i] = t_start(works, (void *)(size + i), 0);
    work(300, size);
    for (int i = 0; i < 3; i++) t_join(some[i]);
    for (int i = 0; i < SHORTS; i++) t_join(t_start(works_little, (void *)(size + 5), 0));
}
static void enter_filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(madvise), ALLOW(read), ALLOW(write), ALLOW(close),
        ALLOW(exit), ALLOW(exit_group), ALLOW(clone), ALLOW(clone3), ALLOW(rseq), ALLOW(set_robust_list), ALLOW(futex), ALLOW(wait4),
        ALLOW(rt_sigprocmask), ALLOW(rt_sigaction), ALLOW(sched_getaffinity), ALLOW(getrandom), ALLOW(readlinkat), ALLOW(nanosleep),
        ALLOW(clock_nanosleep), ALLOW(sched_yield), ALLOW(pipe2), ALLOW(restart_syscall), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    T_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// A copy behind libc's back, by clone with these flags. The parent does nothing until the child has made itself known.
static pid_t copy(int flags) {
    int gate[2];
    char c = 0;
    T_CHECK(pipe2(gate, O_CLOEXEC) == 0);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | flags, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        t_start_over();
        work(1, 10);
        T_CHECK(write(gate[1], &c, 1) == 1);
    } else {
        T_CHECK(pid > 0 && read(gate[0], &c, 1) == 1);
    }
    close(gate[0]);
    close(gate[1]);
    return pid;
}
static void leave(int status) {
    t_pid = outer_pid();
    truth_write();
    _exit(status);
}
static int first_is_done;
static void *last(void *kind) { // ends the process after its first thread
    while (!__atomic_load_n(&first_is_done, __ATOMIC_ACQUIRE)) nap(1);
    nap(5);
    work(200, 900);
    leave((int)(size_t)kind);
    return NULL;
}
static void inner_zygote(int depth, int kind);

static void child(int depth, int kind, int gate) {
    char c = 0;
    pid_t pid;
    work(50 + kind, 40);
    switch (kind) {
    case 0: threads(100); break;
    case 1: // threads in a sandbox, and a fork in there
        enter_filter();
        threads(200);
        pid = t_fork();
        if (pid == 0) { threads(250); leave(kind); }
        t_wait(pid, kind);
        break;
    case 2: // gone at once
        break;
    case 3: // its first thread is not its last
        t_start(last, (void *)(size_t)kind, 0);
        work(100, 300);
        __atomic_store_n(&first_is_done, 1, __ATOMIC_RELEASE);
        syscall(SYS_exit, 0);
        break;
    case 4: // a copy behind libc's back, with threads
        pid = copy(0);
        if (pid == 0) { threads(400); leave(kind); }
        work(100, 450);
        t_wait(pid, kind);
        break;
    case 5: // the same in a sandbox, where it can't ask who it is
        enter_filter();
        pid = copy(0);
        if (pid == 0) { threads(500); leave(kind); }
        threads(550);
        t_wait(pid, kind);
        break;
    case 6: // namespaces in there, with the same numbers
        if (depth < 1) inner_zygote(depth + 1, kind);
        work(100, 600);
        break;
    case 7: // killed with its namespace, after its last word
        threads(700);
        t_pid = outer_pid();
        truth_write();
        T_CHECK(write(gate, &c, 1) == 1);
        for (;;) pause();
    default: // slow, and ends after all others but the last
        for (int i = 0; i < 10; i++) { work(100, 800); nap(5); }
    }
    leave(kind);
}

// Process 1 of new namespaces: goes through all kinds twice at once, and leaves while some still live.
static void zygote(int depth, const char *root) {
    int gate[2], lasting = 0;
    char c;
    T_CHECK(!root || chroot(root) == 0);
    T_CHECK(getpid() == 1 && pipe(gate) == 0);
    work(500, 30);
    for (int i = 0; i < 2 * KINDS; i++) {
        pid_t pid = t_fork();
        if (pid == 0) child(depth, (i * 5) % KINDS, gate[1]);
        T_CHECK(pid > 0);
        lasting += (i * 5) % KINDS == 7;
        work(20, 35);
    }
    for (int i = lasting; i < 2 * KINDS; i++) {
        int status;
        pid_t pid = wait(&status);
        T_CHECK(pid > 1 && WIFEXITED(status) && WEXITSTATUS(status) < KINDS);
        work(5, 36);
    }
    for (int i = 0; i < lasting; i++) T_CHECK(read(gate[0], &c, 1) == 1);
    leave(20);
}
static void inner_zygote(int depth, int kind) {
    pid_t pid = copy(CLONE_NEWPID);
    if (pid == 0) zygote(depth, NULL);
    work(10 + kind, 650);
    t_wait(pid, 20);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int count = atoi(argv[1]), in_turn = argc > 3;
    pid_t zygotes[64];
    const char *path = getenv("TRUTH");
    T_CHECK(count > 0 && count <= 64);
    alarm(120);
    if (path) t_fd = t_open(path);
    proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    T_CHECK(proc >= 0);
    work(1000, 20);
    for (int i = 0; i < count; i++) {
        zygotes[i] = copy(CLONE_NEWUSER | CLONE_NEWPID);
        // Every other one keeps its root.
        if (zygotes[i] == 0) zygote(0, i % 2 ? NULL : argv[2]);
        work(50, 25);
        if (in_turn) t_wait(zygotes[i], 20);
    }
    for (int i = 0; i < count && !in_turn; i++) t_wait(zygotes[i], 20);
    return 0;
}
