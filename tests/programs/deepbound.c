// deepbound LIBRARY HOW: loads plugin.c's library with RTLD_DEEPBIND, so that it calls libc's malloc and free itself.
//
// HOW is `own`: 1000 blocks are made and freed there; `free`: 1000 of its blocks are freed here; `realloc`: resized here, then
// freed; `drop`: 1000 of our blocks are freed there, one after the other; `killed`: as `own`, and then a signal ends it;
// `missing`: loads the library without RTLD_DEEPBIND first, then a file that is not there, and the library once more.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
enum { COUNT = 1000 };
static void *blocks[COUNT];

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int deep = RTLD_NOW | RTLD_DEEPBIND, is_missing = !strcmp(argv[2], "missing");
    int is_own = !strcmp(argv[2], "own") || !strcmp(argv[2], "killed");
    if (is_missing && (!dlopen(argv[1], RTLD_NOW) || dlopen("/no/such/deepbound.so", deep))) return 6;
    void *library = dlopen(argv[1], deep);
    if (!library) return 3;
    void *(*make)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_make");
    void (*drop)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "plugin_drop");
    if (!make || !drop) return 4;
    for (size_t i = 0; i < COUNT; i++) {
        if (!strcmp(argv[2], "drop")) {
            blocks[i] = malloc(100 + i % 7);
            memset(blocks[i], 1, 100);
            drop(blocks[i]);
            continue;
        }
        if (is_own) {
            drop(make(100 + i));
            continue;
        }
        blocks[i] = make(100 + i);
        memset(blocks[i], 1, 100 + i);
    }
    if (!strcmp(argv[2], "killed")) raise(SIGKILL);
    for (size_t i = 0; !is_own && i < COUNT; i++) {
        if (!strcmp(argv[2], "realloc")) blocks[i] = realloc(blocks[i], 3000 - i);
        if (strcmp(argv[2], "drop")) free(blocks[i]);
    }
    return dlclose(library) ? 5 : 0;
}
