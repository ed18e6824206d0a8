// An executable whose malloc and free hand on to the next ones, as a program with counters of its own does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
static size_t count;
void *malloc(size_t n) {
    static void *(*next)(size_t);
    if (!next) next = (void *(*)(size_t))(uintptr_t)dlsym(RTLD_NEXT, "malloc");
    count++;
    return next(n);
}
void free(void *p) {
    static void (*next)(void *);
    if (!next) next = (void (*)(void *))(uintptr_t)dlsym(RTLD_NEXT, "free");
    next(p);
}

int main(void) {
    for (size_t i = 0; i < 500; i++) {
        void *p = malloc(1000 + i);
        __asm__ volatile("" ::"r"(p) : "memory");
        free(p);
    }
    return count < 500;
}
