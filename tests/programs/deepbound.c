// deepbound LIBRARY HOW: loads plugin.c's library with RTLD_DEEPBIND, so that it calls libc's malloc and free itself.
//
// HOW is `free`: 1000 of its blocks are freed here; `realloc`: resized here, then freed; `drop`: 1000 of our blocks are freed
// there, one after the other.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
enum { COUNT = 1000 };
static void *blocks[COUNT];

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
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
        blocks[i] = make(100 + i);
        memset(blocks[i], 1, 100 + i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (!strcmp(argv[2], "realloc")) blocks[i] = realloc(blocks[i], 3000 - i);
        if (strcmp(argv[2], "drop")) free(blocks[i]);
    }
    return dlclose(library) ? 5 : 0;
}
