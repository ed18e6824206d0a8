// Every way out: exits MODE. Each makes the same 100 calls first and knows that nothing comes after.
#include "truth.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void last_words(void) { t_malloc(41); truth_write(); }
static void on_abort(int sig) { (void)sig; truth_write(); }
static int made;
static void *other(void *arg) { t_malloc(17); __atomic_store_n(&made, 1, __ATOMIC_RELEASE); usleep(50000); return arg; }
static void *late(void *arg) { usleep(50000); t_malloc(18); return arg; }

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "return";
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (int i = 0; i < 100; i++) t_malloc((size_t)i * 3);
    if (!strcmp(mode, "_exit")) { truth_write(); _exit(51); }
    if (!strcmp(mode, "_Exit")) { truth_write(); _Exit(52); }
    if (!strcmp(mode, "syscall")) { truth_write(); syscall(SYS_exit_group, 53); }
    if (!strcmp(mode, "quick_exit")) { at_quick_exit(last_words); quick_exit(54); }
    if (!strcmp(mode, "exit")) { atexit(last_words); exit(55); }
    if (!strcmp(mode, "abort")) { signal(SIGABRT, on_abort); abort(); }
    if (!strcmp(mode, "segv")) { truth_write(); raise(SIGSEGV); *(volatile int *)16 = 1; }
    if (!strcmp(mode, "kill")) { truth_write(); kill(getpid(), SIGKILL); }
    if (!strcmp(mode, "term")) { truth_write(); kill(getpid(), SIGTERM); }
    if (!strcmp(mode, "pthread_exit")) { t_start(late, NULL, 0); pthread_exit(NULL); }
    if (!strcmp(mode, "with_threads")) {
        t_start(other, NULL, 0);
        while (!__atomic_load_n(&made, __ATOMIC_ACQUIRE)) usleep(1000);
        truth_write();
        _exit(57);
    }
    return 56;
}
