// unmaps: which of the program's mappings the MPI library hears the end of, as its registration cache needs.
//
// After MPI_Init it asks UCX's and Open MPI's memory hooks, where they are loaded, to be told of unmapped memory, and
// prints for each way in which memory goes whether they told. The same program without us says what is right.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static volatile uintptr_t low, high;
static volatile int ucx_told, open_mpi_told;

static bool covers(const void *start, size_t size) { return (uintptr_t)start <= low && (uintptr_t)start + size >= high; }

// ucm_event_t begins, for an unmapping, with the address and the size.
struct unmapped { void *address; size_t size; };
static void by_ucx(int kind, struct unmapped *event, void *arg) {
    (void)kind; (void)arg;
    if (covers(event->address, event->size)) ucx_told = 1;
}
static void by_open_mpi(void *start, size_t size, void *data, bool from_allocator) {
    (void)data; (void)from_allocator;
    if (covers(start, size)) open_mpi_told = 1;
}

static void expect(void *start, size_t size) {
    low = (uintptr_t)start + 8192;
    high = (uintptr_t)start + size - 8192;
    ucx_told = open_mpi_told = 0;
}
static void told(const char *what) { printf("%s: ucx %d, open mpi %d\n", what, ucx_told, open_mpi_told); }

int main(int argc, char **argv) {
    enum { BIG = 8 << 20, ONE = 1 << 20, SOME = 100000, COUNT = 200, UNMAPPED = 1 << 17 };
    static char *blocks[COUNT];
    MPI_Init(&argc, &argv);
    if (argc > 1 && strstr(argv[1], "ucx")) {
        void *library = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD);
        int (*handle)(int, int, void (*)(int, struct unmapped *, void *), void *) =
            library ? dlsym(library, "ucm_set_event_handler") : NULL;
        if (handle) printf("ucx: %d\n", handle(UNMAPPED, 1000, by_ucx, NULL));
    }
    if (argc > 1 && strstr(argv[1], "opal")) {
        void (*handle)(void (*)(void *, size_t, void *, bool), void *) = dlsym(RTLD_DEFAULT, "opal_mem_hooks_register_release");
        if (handle) handle(by_open_mpi, NULL);
        printf("open mpi: %d\n", handle != NULL);
    }
    fflush(stdout);
    char *p = malloc(BIG);
    memset(p, 1, BIG);
    expect(p, BIG);
    free(p);
    told("free of a large block");
    p = mmap(NULL, ONE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(p, ONE);
    munmap(p, ONE);
    told("munmap");
    p = mmap(NULL, ONE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(p, ONE);
    madvise(p, ONE, MADV_DONTNEED);
    told("madvise");
    for (int i = 0; i < COUNT; i++) { blocks[i] = malloc(SOME); memset(blocks[i], 1, SOME); }
    expect(blocks[COUNT / 2], 2 * SOME);
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
    malloc_trim(0);
    told("a shrinking heap");
    MPI_Finalize();
    return 0;
}
