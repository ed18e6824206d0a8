// A library for LD_PRELOAD that wraps dlsym as overlays and shims do: it allocates, looks up, and frees.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    char *copy = strdup(name);
    void *found = real(handle, copy);
    free(copy);
    return found;
}
