// beyond HOW BYTES: asks for more than the kernel gives, by `malloc`, `realloc`, `mmap`, `mapped` (and resized) or `small` (a block that
// `realloc` has to move). After `again` at the end the same once more, when something was refused. Fails where it is given.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *ask(const char *how, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, rights = PROT_READ | PROT_WRITE;
    void *had = 0, *found = 0;
    if (!strcmp(how, "malloc")) return malloc(bytes);
    if (!strcmp(how, "realloc") || !strcmp(how, "small")) {
        had = malloc(how[0] == 'r' ? 2 << 20 : 100);
        found = realloc(had, bytes);
        if (!found) free(had);
        return found;
    }
    if (!strcmp(how, "mmap")) {
        found = mmap(0, bytes, rights, flags, -1, 0);
    } else {
        had = mmap(0, 8192, rights, flags, -1, 0);
        found = mremap(had, 8192, bytes, MREMAP_MAYMOVE);
        munmap(had, 8192);
    }
    return found == MAP_FAILED ? 0 : found;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    size_t bytes = strtoull(words[2], 0, 10);
    if (ask(words[1], bytes)) return 3;
    if (count > 3) {
        if (malloc((size_t)1 << 46 | 1)) return 4;
        if (ask(words[1], bytes)) return 5;
    }
    // All of it works as ever.
    char *block = realloc(malloc(3 << 20), 5 << 20), *mapping = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!block || mapping == MAP_FAILED) return 6;
    memset(block, 1, 5 << 20);
    memset(mapping, 1, 4 << 20);
    return 0;
}
