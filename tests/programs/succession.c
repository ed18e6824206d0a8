// succession BYTES ROUNDS HOW: one process after another has nearly all of a limit.
//
// In each round another process takes BYTES and is killed; once its end shows this one takes BYTES. HOW it shows:
// `wait` by waitpid, `call` by the system call for that; for one that is no child of ours `pipe` by the end of a pipe
// that it had open, `poll` by a descriptor of the process. Prints how often there was no memory.
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int lacks(size_t bytes) {
    void *volatile block = malloc(bytes);
    int is_lacking = block == NULL;
    free(block);
    return is_lacking;
}

static void hold(size_t bytes, int out) {
    void *volatile block = malloc(bytes);
    pid_t own = block == NULL ? 0 : getpid();
    if (write(out, &own, sizeof own) != sizeof own) _exit(3);
    for (;;) pause();
}

// Starts one that holds BYTES; a child, or one whose parent has gone. Its number, or 0 where it lacked memory.
static pid_t start(size_t bytes, int is_child, int ends[2]) {
    if (pipe(ends) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        if (!is_child && fork() != 0) _exit(0);
        hold(bytes, ends[1]);
    }
    close(ends[1]);
    if (!is_child) waitpid(child, NULL, 0);
    pid_t holder = -1;
    if (child < 0 || read(ends[0], &holder, sizeof holder) != sizeof holder) return -1;
    return holder;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    size_t bytes = strtoull(words[1], NULL, 10);
    int rounds = atoi(words[2]), lacking = 0;
    char how = words[3][0] == 'p' ? words[3][1] : words[3][0];
    int is_child = how == 'w' || how == 'c';
    for (int round = 0; round < rounds; round++) {
        int ends[2];
        pid_t holder = start(bytes, is_child, ends);
        if (holder < 0) return 3;
        if (holder == 0) lacking++;
        char byte;
        struct pollfd end = {.fd = how == 'o' ? syscall(SYS_pidfd_open, holder, 0) : -1, .events = POLLIN};
        if (holder > 0) kill(holder, SIGKILL);
        if (how == 'w') waitpid(holder, NULL, 0);
        if (how == 'c') syscall(SYS_wait4, holder, NULL, 0, NULL);
        if (how == 'i') while (read(ends[0], &byte, 1) > 0) {}
        if (how == 'o') poll(&end, 1, -1);
        lacking += lacks(bytes);
        close(ends[0]);
        if (end.fd >= 0) close(end.fd);
    }
    dprintf(1, "%d\n", lacking);
    return 0;
}
