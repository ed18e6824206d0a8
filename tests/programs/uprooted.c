// uprooted DIRECTORY [PROGRAM]: makes the directory its root, calls the allocator there, also from a fork of itself, and becomes
// the program, if it is given; else ends with 21.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(size_t n) {
    for (size_t i = 0; i < 400; i++) {
        void *p = malloc(n + i);
        __asm__ volatile("" ::"r"(p) : "memory");
        free(p);
    }
}

int main(int argc, char **argv) {
    if (argc < 2 || chroot(argv[1]) || chdir("/")) return 2;
    work(10);
    pid_t child = fork();
    if (child == 0) {
        work(20);
        _exit(22);
    }
    int status;
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 22) return 3;
    if (argc > 2) execv(argv[2], argv + 2);
    return 21;
}
