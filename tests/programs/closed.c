// closed LIBRARY: blocks that plugin.c's library has made outlive it, and are freed here when it is gone.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static void *blocks[200];

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) return 3;
        void *(*make)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_make");
        if (!make) return 4;
        for (size_t i = 0; i < 200; i++) blocks[i] = memset(make(7000 + i), 1, 10);
        if (dlclose(library)) return 5;
        if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD)) return 6;
        for (size_t i = 0; i < 200; i++) free(blocks[i]);
    }
    return 0;
}
