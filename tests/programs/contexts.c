// Stacks that are not the thread's own: three contexts of 16 KiB each that hand blocks to one another, jumps out of deep
// calls, threads that are cancelled or leave from within.
#include "truth.h"
#include <setjmp.h>
#include <ucontext.h>

enum { CONTEXTS = 3, TURNS = 2000 };
static ucontext_t home, contexts[CONTEXTS];
static char stacks[CONTEXTS][16384] __attribute__((aligned(64)));
static void *handed;
static jmp_buf back;
static volatile int jumping = 1;

static void turn(int self) {
    for (int i = 0; i < TURNS; i++) {
        t_free(handed);
        handed = t_malloc(30 + (size_t)(i % 50));
        T_CHECK(swapcontext(&contexts[self], &contexts[(self + 1) % CONTEXTS]) == 0);
    }
}

static void deep(int n) {
    char room[100];
    T_KEEP(room);
    t_free(t_malloc((size_t)n + 1));
    if (n > 0) deep(n - 1);
    else if (jumping) longjmp(back, 1);
    T_KEEP(room);
}

static void undo(void *p) { t_free(p); }

static void *cancelled(void *arg) {
    void *p = t_malloc(77);
    pthread_cleanup_push(undo, p);
    __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
    for (;;) pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static void *leaves(void *arg) {
    t_free(t_malloc(88));
    pthread_exit(arg);
}

static void switched(void) {
    // getcontext may return a second time, as setjmp does.
    static int i;
    for (i = 0; i < CONTEXTS; i++) {
        T_CHECK(getcontext(&contexts[i]) == 0);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = sizeof stacks[i];
        contexts[i].uc_link = &home;
        makecontext(&contexts[i], (void (*)(void))turn, 1, i);
    }
    T_CHECK(swapcontext(&home, &contexts[0]) == 0);
    t_free(handed);
}

static void ended(void) {
    for (int i = 0; i < 20; i++) {
        int ready = 0;
        pthread_t thread = t_start(cancelled, &ready, 0);
        while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) usleep(100);
        T_CHECK(pthread_cancel(thread) == 0);
        t_join(thread);
        t_join(t_start(leaves, NULL, 0));
    }
}

int main(void) {
    static int jumps;
    switched();
    setjmp(back);
    if (++jumps <= 50) deep(20);
    ended();
    return 0;
}
