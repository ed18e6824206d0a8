// The floor under every preloaded recorder: forwards each call and does nothing else.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);

__attribute__((constructor)) static void find(void) {
    next_malloc = dlsym(RTLD_NEXT, "malloc");
    next_free = dlsym(RTLD_NEXT, "free");
}

void *malloc(size_t size) {
    if (!next_malloc) find();
    return next_malloc(size);
}

void free(void *block) {
    if (!next_free) find();
    next_free(block);
}
