// Stacks of all kinds: deep ones, frames that align the stack anew or have no fixed size, coroutines, signal handlers on
// the thread's own stack and on another one, at any instruction, and jumps out of them.
#define _GNU_SOURCE
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { CONTEXTS = 4, ROUNDS = 200, STACK = 65536 };

static void *volatile last;
static volatile sig_atomic_t handled;

__attribute__((noinline)) static void leaf(int size) {
    void *volatile block = malloc(size);
    free(last);
    last = block;
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void aligned(int size) {
    __attribute__((aligned(64))) volatile char room[128];
    room[0] = 0;
    leaf(size + room[0]);
    room[1] = 1;
}

__attribute__((noinline)) static void variable(int size) {
    volatile char *room = alloca(size * 16 + 1);
    room[0] = 1;
    leaf(size);
    aligned(size);
    room[1] = 1;
}

// The frame lies at the same place for callers that stand a little apart, and tells them apart by one word.
__attribute__((noinline)) static void realigned(int size) {
    __attribute__((aligned(256))) volatile char room[128];
    volatile char *more = alloca(size * 16 + 1);
    room[0] = more[0] = 0;
    leaf(size + room[0]);
    room[1] = 1;
}

__attribute__((noinline)) static void near(int size) {
    volatile char room[16] = {0};
    realigned(size + room[0]);
    room[1] = 1;
}

__attribute__((noinline)) static void far(int size) {
    volatile char room[48] = {0};
    realigned(size + room[0]);
    room[1] = 1;
}

__attribute__((noinline)) static int deep(int depth, int size) {
    if (depth == 0) {
        variable(size);
        leaf(size);
        return 1;
    }
    int below = deep(depth - 1, size) + 1;
    leaf(size);
    return below;
}

static ucontext_t mainly, contexts[CONTEXTS];

static void coroutine(int number) {
    for (int round = 0; round < ROUNDS; round++) {
        deep(round % 5, 16 + number);
        swapcontext(&contexts[number], &mainly);
    }
}

static void handler(int signal) {
    (void)signal;
    handled++;
    deep(2, 24);
}

static sigjmp_buf out;

static void jumper(int signal) {
    (void)signal;
    leaf(30);
    siglongjmp(out, 1);
}

int main(void) {
    for (int i = 0; i < 300; i++) deep(i % 150, 8 + i % 50);
    for (int i = 0; i < CONTEXTS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(STACK);
        contexts[i].uc_stack.ss_size = STACK;
        contexts[i].uc_link = &mainly;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CONTEXTS; i++) swapcontext(&mainly, &contexts[i]), leaf(8);
    for (int i = 0; i < 300; i++) {
        volatile char *apart = alloca(i % 7 * 16 + 1);
        apart[0] = 0;
        i % 3 ? near(7) : far(7);
    }
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, 0);
    for (int i = 0; i < 50; i++) raise(SIGUSR1), leaf(9);
    stack_t other = {.ss_sp = malloc(STACK), .ss_size = STACK};
    sigaltstack(&other, 0);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, 0);
    for (int i = 0; i < 50; i++) raise(SIGUSR2), leaf(10);
    action.sa_handler = jumper;
    sigaction(SIGUSR1, &action, 0);
    for (volatile int i = 0; i < 50; i++) {
        if (!sigsetjmp(out, 1)) raise(SIGUSR1);
        leaf(11);
    }
    printf("%d\n", (int)handled);
    return 0;
}
