// plugged LIBRARY: loads and unloads a library again and again, frees its blocks, and goes on allocating in between.
#include "truth.h"

int main(int argc, char **argv) {
    T_CHECK(argc > 1);
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(argv[1], i % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_LOCAL);
        T_CHECK(library);
        void *(*make)(size_t) = (void *(*)(size_t))dlsym(library, "plugin_make");
        T_CHECK(make);
        void *p = make(800 + (size_t)i);
        // Born in the library, so not in our table yet.
        t_free(t_malloc(10));
        t_insert((uint64_t)p, 800 + (size_t)i);
        t_free(p);
        T_CHECK(dlclose(library) == 0);
        t_malloc(20 + (size_t)i);
    }
    return 0;
}
