// exec and posix_spawn with an empty environment, by each function that takes or inherits one. The truth file comes as an argument.
#include "truth.h"
#include <spawn.h>
extern char **environ;

static void run(char **argv, int how) {
    char step[] = {(char)('0' + how), 0};
    char *none[] = {NULL};
    char *args[] = {argv[0], step, (char *)t_path, NULL};
    pid_t pid;
    if (how == 5) {
        T_CHECK(posix_spawn(&pid, argv[0], NULL, NULL, args, none) == 0);
        t_wait(pid, 5);
        return;
    }
    pid = t_fork();
    if (pid == 0) {
        t_malloc(1);
        truth_write();
        if (how == 0) execve(argv[0], args, none);
        if (how == 1) { clearenv(); execv(argv[0], args); }
        if (how == 2) execle(argv[0], argv[0], step, t_path, (char *)NULL, none);
        if (how == 3) { environ = none; execvp(argv[0], args); }
        if (how == 4) { T_CHECK(unsetenv("LD_PRELOAD") == 0); execvpe(argv[0], args, none); }
        if (how == 6) { int fd = open(argv[0], O_RDONLY | O_CLOEXEC); fexecve(fd, args, none); }
        if (how == 7) { environ = NULL; execl(argv[0], argv[0], step, t_path, (char *)NULL); }
        _exit(97);
    }
    t_wait(pid, how);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        t_path = argv[2];
        for (int i = 0; i < 25; i++) t_malloc((size_t)i);
        // What the program sees must be what was given to it: nothing but, at most, the recorder's own variables.
        for (char **e = environ; e && *e; e++)
            T_CHECK(!strncmp(*e, "LD_PRELOAD=", 11) || !strncmp(*e, "HEAPTAPE", 8));
        return argv[1][0] - '0';
    }
    t_path = getenv("TRUTH");
    for (int how = 0; how < 8; how++) run(argv, how);
    return 0;
}
