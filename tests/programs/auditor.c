// A library for LD_AUDIT: it has a namespace and a libc of its own, and allocates whenever the loader tells it something.
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>

__attribute__((visibility("default"))) unsigned int la_version(unsigned int version) { return version; }
__attribute__((visibility("default"))) unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    (void)map, (void)space;
    *cookie = (uintptr_t)malloc(100);
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
__attribute__((visibility("default"))) uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to, unsigned int *flags, const char *name) {
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    free(malloc(10));
    return symbol->st_value;
}
