// Fibres as libraries of coroutines make them: stacks of their own, and a switch written by hand, that saves what a callee
// keeps and nothing else. A fibre's outermost frame is the entry, which says that nobody has called it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIBRES = 8, ROUNDS = 400, STACK = 65536 };

void *fibre_switch(void **from, void *to, void *argument);
void fibre_entry(void);
__asm__(".text\n"
        ".type fibre_switch, @function\n"
        "fibre_switch:\n"
        "  .cfi_startproc\n"
        "  push %rbp\n  .cfi_adjust_cfa_offset 8\n  .cfi_rel_offset %rbp, 0\n"
        "  push %rbx\n  .cfi_adjust_cfa_offset 8\n"
        "  push %r12\n  .cfi_adjust_cfa_offset 8\n"
        "  push %r13\n  .cfi_adjust_cfa_offset 8\n"
        "  push %r14\n  .cfi_adjust_cfa_offset 8\n"
        "  push %r15\n  .cfi_adjust_cfa_offset 8\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  .cfi_adjust_cfa_offset -8\n"
        "  pop %r14\n  .cfi_adjust_cfa_offset -8\n"
        "  pop %r13\n  .cfi_adjust_cfa_offset -8\n"
        "  pop %r12\n  .cfi_adjust_cfa_offset -8\n"
        "  pop %rbx\n  .cfi_adjust_cfa_offset -8\n"
        "  pop %rbp\n  .cfi_adjust_cfa_offset -8\n  .cfi_restore %rbp\n"
        "  mov %rdx, %rax\n"
        "  ret\n"
        "  .cfi_endproc\n"
        ".size fibre_switch, . - fibre_switch\n"
        ".type fibre_entry, @function\n"
        "fibre_entry:\n"
        "  .cfi_startproc\n"
        "  .cfi_undefined %rip\n"
        "  mov %rax, %rdi\n"
        "  call *%rbx\n"
        "  ud2\n"
        "  .cfi_endproc\n"
        ".size fibre_entry, . - fibre_entry\n");

static void *mainly, *fibres[FIBRES];
static long made;

__attribute__((noinline)) static void grow(int depth, int size) {
    void *volatile block = malloc(size + depth);
    made++;
    if (depth > 0) grow(depth - 1, size);
    free(block);
}

static void run(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    for (int round = 0;; round++) {
        grow(round % 7, 16 + (int)number);
        // Now and then another fibre is next, and not the main one.
        uintptr_t next = (number + 1) % FIBRES;
        if (round % 5 == 0 && next) fibre_switch(&fibres[number], fibres[next], (void *)next);
        else fibre_switch(&fibres[number], mainly, NULL);
    }
}

static void *begin(void) {
    uintptr_t *top = (uintptr_t *)((char *)malloc(STACK) + STACK);
    // The stack is aligned at the entry's call.
    *--top = 0;
    *--top = 0;
    *--top = (uintptr_t)fibre_entry;
    // rbp, rbx, r12 to r15.
    *--top = 0;
    *--top = (uintptr_t)run;
    for (int i = 0; i < 4; i++) *--top = 0;
    return top;
}

int main(void) {
    for (int i = 0; i < FIBRES; i++) fibres[i] = begin();
    for (int round = 0; round < ROUNDS; round++)
        for (uintptr_t i = 0; i < FIBRES; i++) {
            fibre_switch(&mainly, fibres[i], (void *)i);
            grow(1, 8);
        }
    printf("%ld\n", made);
    return 0;
}
