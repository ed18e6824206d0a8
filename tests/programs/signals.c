// Signal handlers on small alternate stacks that call the allocator at moments when that is safe, in main and in threads.
#include "truth.h"
#include <signal.h>
#include <sys/time.h>
static void *volatile held;
static volatile int ticks;

static void handler(int sig) {
    t_free(held);
    held = t_malloc(100 + (size_t)sig);
    held = t_realloc(held, 300);
    ticks++;
}
static void *own;
static void thread_handler(int sig) { (void)sig; t_free(own); own = t_calloc(1, 55); }
static void small_stack(void) {
    // What the kernel needs for the frame, and 4 KiB for the handler and the calls in it.
    static char stacks[2][65536] __attribute__((aligned(4096)));
    static int next;
    size_t need = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
    stack_t s = {.ss_sp = stacks[next++], .ss_size = need < 65536 ? need : 65536};
    T_CHECK(sigaltstack(&s, NULL) == 0);
}
static void *work(void *arg) {
    small_stack();
    for (int i = 0; i < 200; i++) { raise(SIGUSR2); t_free(t_malloc(7)); }
    t_free(own);
    return arg;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    struct sigaction in_thread = {.sa_handler = thread_handler, .sa_flags = SA_ONSTACK};
    sigset_t block, wait;
    small_stack();
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR2, &in_thread, NULL);
    for (int i = 0; i < 500; i++) { raise(SIGUSR1); t_free(t_malloc(8)); }
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    sigprocmask(SIG_BLOCK, &block, &wait);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    while (ticks < 600) { sigsuspend(&wait); t_free(t_malloc(9)); }
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    t_join(t_start(work, NULL, 0));
    return 0;
}
