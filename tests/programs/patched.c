// patched: has the library patcher (its path is the second argument) patch madvise in the way that the first argument names,
// calls it, waits, and prints how many calls came to the library:
//   libc     libc's own function begins with a jump
//   wrapper  the function that the program calls does
//   entry    the program's own entry for the function is another
//   nothing  none of it
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int change_entry(void *to) {
    ElfW(Dyn) *dynamic = _DYNAMIC;
    uintptr_t base = 0;
    ElfW(Rela) *tables[2] = {0};
    size_t sizes[2] = {0};
    ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    struct link_map *map = dlopen(NULL, RTLD_LAZY);
    base = map->l_addr;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        switch (dynamic->d_tag) {
        case DT_JMPREL: tables[0] = (void *)dynamic->d_un.d_ptr; break;
        case DT_PLTRELSZ: sizes[0] = dynamic->d_un.d_val; break;
        case DT_RELA: tables[1] = (void *)dynamic->d_un.d_ptr; break;
        case DT_RELASZ: sizes[1] = dynamic->d_un.d_val; break;
        case DT_SYMTAB: symbols = (void *)dynamic->d_un.d_ptr; break;
        case DT_STRTAB: names = (void *)dynamic->d_un.d_ptr; break;
        }
    }
    for (int t = 0; t < 2; t++) {
        for (size_t i = 0; tables[t] && i < sizes[t] / sizeof(ElfW(Rela)); i++) {
            ElfW(Rela) *rela = &tables[t][i];
            unsigned kind = ELF64_R_TYPE(rela->r_info);
            if (kind != R_X86_64_JUMP_SLOT && kind != R_X86_64_GLOB_DAT) continue;
            if (strcmp(names + symbols[ELF64_R_SYM(rela->r_info)].st_name, "madvise")) continue;
            void **slot = (void **)(base + rela->r_offset);
            if (mprotect((void *)((uintptr_t)slot & -4096UL), 4096, PROT_READ | PROT_WRITE)) return 1;
            *slot = to;
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    void *library = dlopen(argv[2], RTLD_NOW);
    if (!library) return 3;
    int (*overwrite)(void *) = dlsym(library, "patcher_overwrite");
    int *calls = dlsym(library, "patcher_calls");
    int failed = 0;
    if (!strcmp(argv[1], "libc")) {
        void *libc = dlopen("libc.so.6", RTLD_NOW);
        failed = overwrite(dlsym(libc, "madvise"));
    } else if (!strcmp(argv[1], "wrapper")) {
        failed = overwrite((void *)madvise);
    } else if (!strcmp(argv[1], "entry")) {
        failed = change_entry(dlsym(library, "patcher_madvise"));
    }
    if (failed) return 4;
    // Neighbours of what was patched are whole.
    for (int i = 0; i < 100; i++) free(realloc(calloc(1, 100), 200));
    free(aligned_alloc(64, 640));
    char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, 1 << 20);
    if (madvise(memory, 1 << 20, MADV_DONTNEED) || memory[5]) return 5;
    usleep(400000);
    printf("%d\n", *calls);
    return 0;
}
