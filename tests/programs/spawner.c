// posix_spawn and posix_spawnp of ourselves and of other programs, system() among them.
#include "truth.h"
#include <spawn.h>
extern char **environ;

static void some(int n) { for (int i = 0; i < n; i++) t_free(t_malloc((size_t)i * 10)); }

int main(int argc, char **argv) {
    if (argc > 1) { t_quiet = 1; some(atoi(argv[1])); t_malloc(12345); return 6; }
    some(10);
    for (int i = 0; i < 10; i++) {
        char count[] = {(char)('0' + i), '0', 0};
        char *args[] = {argv[0], count, NULL};
        char *truth[] = {(char *)"true", NULL};
        posix_spawnattr_t attr;
        pid_t pid;
        T_CHECK(posix_spawn(&pid, argv[0], NULL, NULL, args, environ) == 0);
        some(5);
        t_wait(pid, 6);
        T_CHECK(posix_spawnattr_init(&attr) == 0 && posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP) == 0);
        T_CHECK(posix_spawnp(&pid, "true", NULL, &attr, truth, environ) == 0);
        t_wait(pid, 0);
        T_CHECK(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, args, environ) == ENOENT);
    }
    T_CHECK(WEXITSTATUS(system("exit 3")) == 3);
    some(20);
    return 0;
}
