// leaky [PLUGIN] [HOW]: what it never frees is known, by function. At the start 10 blocks of 5000 bytes; all through the run 800 of
// 100; in the last 5 % 7 of 3000; of a library that it loads half way and unloads again 3 of 640. Everything else is freed.
// HOW: "fork" lets a child make 5 blocks of 2000 and leave by itself; "kill" ends with SIGKILL.
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define STEPS 800
#define APART __attribute__((noinline, noclone))

static void *volatile last;

APART void at_start(void) {
    for (int i = 0; i < 10; i++) last = malloc(5000);
}
APART void growing_list(void) { last = malloc(100); }
APART void near_the_end(void) {
    for (int i = 0; i < 7; i++) last = malloc(3000);
}
APART void in_the_child(void) {
    for (int i = 0; i < 5; i++) last = malloc(2000);
}
APART void work(void) {
    void *a = malloc(300), *b = calloc(3, 70);
    a = realloc(a, 900);
    free(b);
    free(a);
}
static void unloaded(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) _exit(99);
    void *(*make)(size_t) = (void *(*)(size_t))dlsym(library, "plugin_make");
    for (int i = 0; i < 3; i++) last = make(640);
    if (dlclose(library) != 0) _exit(99);
}
static void child(void) {
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 50; i++) work();
        in_the_child();
        _exit(0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) _exit(99);
}

int main(int argc, char **argv) {
    const char *how = argc > 2 ? argv[2] : "";
    at_start();
    for (int i = 0; i < STEPS; i++) {
        work();
        growing_list();
        if (i == STEPS / 2 && argc > 1) unloaded(argv[1]);
        if (i == STEPS - 20) near_the_end();
    }
    if (strcmp(how, "fork") == 0) child();
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    return 0;
}
