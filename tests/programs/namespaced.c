// namespaced LIBRARY: loads plugin.c's library into a namespace of its own, with a libc of its own, and has blocks made and
// dropped in there: 300 calls here, which are seen, and 300 there, which are not.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!library) return 3;
    void *(*make)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_make");
    void (*drop)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "plugin_drop");
    if (!make || !drop) return 4;
    for (size_t i = 0; i < 150; i++) {
        void *theirs = make(3000 + i), *own = malloc(5000 + i);
        __asm__ volatile("" ::"r"(own) : "memory");
        drop(theirs);
        free(own);
    }
    return dlclose(library) ? 5 : 0;
}
