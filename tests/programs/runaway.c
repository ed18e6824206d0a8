// runaway WAY MIB MILLISECONDS: takes so much by malloc in a process that has tried to get away from who counts it, tells how much it
// got and stays. 9: the way does not exist here.
#define _GNU_SOURCE
#include "taken.h"
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

static size_t want;
static unsigned stay;
static char **again;

static void work(void) { tell(take_blocks(want), stay); }

static int child(void *unused) {
    (void)unused;
    work();
    return 0;
}

static int wait_for(pid_t pid) {
    int status = 0;
    if (pid < 0) return 9;
    while (waitpid(pid, &status, __WALL) != pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// This program once more, by `blocks`, with such an environment.
static int become(char **environment, int raw) {
    again[1] = "blocks";
    if (raw) syscall(SYS_execve, "/proc/self/exe", again, environment);
    else execve("/proc/self/exe", again, environment);
    return 9;
}

static int without_variables(void) {
    char *kept[512];
    int count = 0;
    for (char **at = environ; *at && count < 511; at++)
        if (strncmp(*at, "LD_", 3) && strncmp(*at, "HEAPTAPE", 8)) kept[count++] = *at;
    kept[count] = NULL;
    return become(kept, 0);
}

static int cloned(unsigned flags) {
    char *stack = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return wait_for(clone(child, stack + MIB, (int)(flags | SIGCHLD), NULL));
}

// A fork by hand, by the newest call for it.
static int cloned_by_hand(void) {
    struct clone_args arguments = {.flags = CLONE_FILES | CLONE_FS, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) {
        work();
        _exit(0);
    }
    return wait_for(pid);
}

static int daemonized(void) {
    if (fork()) return 0;
    setsid();
    if (fork()) _exit(0);
    usleep(100000);
    work();
    return 0;
}

// So many processes at once, each with one MiB. No more than that are ever there.
static int bomb(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = limit.rlim_max < 4000 ? limit.rlim_max : 4000;
    setrlimit(RLIMIT_NPROC, &limit);
    size_t taken = 0, all = 0;
    int ends[2], end[2];
    if (pipe(ends) || pipe(end)) return 9;
    for (; all < want && all < 200; all++) {
        pid_t pid = fork();
        if (pid < 0) break;
        if (pid == 0) {
            char got = (char)take_block();
            close(end[1]);
            if (write(ends[1], &got, 1) != 1) _exit(8);
            // Until the parent has let go.
            _exit(read(end[0], &got, 1) != 0);
        }
    }
    close(ends[1]);
    char got;
    for (; all > 0 && read(ends[0], &got, 1) == 1; all--) taken += (size_t)got;
    tell(taken, stay);
    close(end[1]);
    while (wait(NULL) > 0);
    return 0;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    const char *way = words[1];
    want = strtoul(words[2], NULL, 10);
    stay = (unsigned)atoi(words[3]);
    again = words;
    char *nothing[] = {NULL}, *other[] = {"LD_PRELOAD=", "LD_LIBRARY_PATH=/", "HEAPTAPE_SESSION=0", NULL};
    if (!strcmp(way, "blocks")) work();
    else if (!strcmp(way, "cleared")) return become(nothing, 0);
    else if (!strcmp(way, "overwritten")) return become(other, 0);
    else if (!strcmp(way, "unset")) return without_variables();
    else if (!strcmp(way, "raw-exec")) return become(nothing, 1);
    else if (!strcmp(way, "clone")) return cloned(CLONE_FILES | CLONE_FS);
    else if (!strcmp(way, "clone-memory")) return cloned(CLONE_VM);
    else if (!strcmp(way, "clone-vfork")) return cloned(CLONE_VM | CLONE_VFORK);
    else if (!strcmp(way, "clone-by-hand")) return cloned_by_hand();
    else if (!strcmp(way, "daemon")) return daemonized();
    else if (!strcmp(way, "bomb")) return bomb();
    else if (!strcmp(way, "kill-parent")) {
        kill(getppid(), SIGKILL);
        usleep(100000);
        work();
    } else if (!strcmp(way, "stop-parent")) {
        kill(getppid(), SIGSTOP);
        usleep(100000);
        work();
    } else return 9;
    return 0;
}
