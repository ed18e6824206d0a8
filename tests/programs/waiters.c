// Children that are waited for inside of libc, or not by a wait at all: waiters HOW COUNT.
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    const char *const how = argc > 1 ? argv[1] : "system";
    const int count = argc > 2 ? atoi(argv[2]) : 1;
    for (volatile int i = 0; i < count; i++) {
        int status = -1;
        if (!strcmp(how, "system")) status = system("exit 3");
        if (!strcmp(how, "popen")) status = pclose(popen("exit 3", "r"));
        if (!strcmp(how, "spawn")) {
            char *words[] = {"sh", "-c", "exit 3", NULL};
            pid_t pid;
            if (posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ)) return 1;
            waitpid(pid, &status, 0);
        }
        if (!strcmp(how, "failing")) {
            if (!vfork()) {
                execl("/nonexistent", "nonexistent", (char *)NULL);
                _exit(127);
            }
            kill(getpid(), SIGKILL);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) return 2;
    }
    return 0;
}
