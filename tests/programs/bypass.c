// bypass WAY MIB MILLISECONDS: takes so much in its own address space by a way that is not malloc's, touches it, tells how much it
// holds and stays. 9: the way does not exist here.
#define _GNU_SOURCE
#include "taken.h"
#include <alloca.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { RW = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS };

static size_t want;
static unsigned stay;
static const char *plug_in;

static char *raw(size_t bytes, int flags) { return (char *)syscall(SYS_mmap, NULL, bytes, RW, flags, -1, 0); }

// So many MiB, each by the same way.
static size_t each(char *(*part)(void)) {
    size_t taken = 0;
    for (char *at; taken < want && (at = part()) != MAP_FAILED && at != NULL; taken++) touch(at, MIB);
    return taken;
}

static char *by_blocks(void) { return malloc(MIB); }
static char *by_mapping(void) { return mmap(NULL, MIB, RW, PRIVATE, -1, 0); }
static char *by_raw_mapping(void) { return raw(MIB, PRIVATE); }
static char *by_raw_sharing(void) { return raw(MIB, MAP_SHARED | MAP_ANONYMOUS); }
static char *by_reservation(void) { return mmap(NULL, MIB, RW, PRIVATE | MAP_NORESERVE, -1, 0); }
static char *by_sbrk(void) { return sbrk(MIB); }

static char *by_raw_brk(void) {
    char *end = (char *)syscall(SYS_brk, 0);
    return (char *)syscall(SYS_brk, end + MIB) == end + MIB ? end : NULL;
}

static char *by_raw_segment(void) {
    int id = (int)syscall(SYS_shmget, IPC_PRIVATE, (size_t)MIB, IPC_CREAT | 0600);
    if (id < 0) return NULL;
    char *at = (char *)syscall(SYS_shmat, id, NULL, 0);
    syscall(SYS_shmctl, id, IPC_RMID, NULL);
    return at;
}

static char *by_large_pages(void) { return mmap(NULL, 2 * MIB, RW, PRIVATE | MAP_HUGETLB, -1, 0); }

// libc's own malloc, past whatever stands before it.
extern void *__libc_malloc(size_t bytes);
static char *by_libcs_own(void) { return __libc_malloc(MIB); }

static char *by_libcs_own_small(void) {
    // So small that they stand in the heap, where nothing is mapped for them.
    static char done[MIB];
    for (int i = 0; i < MIB / 1024; i++) touch(__libc_malloc(1008), 1008);
    return done;
}

// A page of a file, copied because it was written to.
static char *by_copies_of_a_file(void) {
    static int file = -1;
    if (file < 0 && ((file = open("/tmp", O_TMPFILE | O_RDWR, 0600)) < 0 || ftruncate(file, MIB))) return NULL;
    return (char *)syscall(SYS_mmap, NULL, MIB, RW, MAP_PRIVATE, file, 0);
}

static char *(*malloc_of_another)(size_t);
static char *by_another_libc(void) {
    if (malloc_of_another == NULL) {
        void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
        if (libc) malloc_of_another = (char *(*)(size_t))dlsym(libc, "malloc");
    }
    return malloc_of_another ? malloc_of_another(MIB) : NULL;
}

static size_t by_growth(void) {
    char *at = mmap(NULL, MIB, RW, PRIVATE, -1, 0);
    at = (char *)syscall(SYS_mremap, at, (size_t)MIB, want * MIB, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) return 0;
    touch(at, want * MIB);
    return want;
}

static size_t by_transparent_huge_pages(void) {
    // One byte of each two MiB brings all of them, where the kernel has such pages.
    static unsigned char there[MIB];
    want += want % 2;
    char *at = mmap(NULL, (want + 2) * MIB, RW, PRIVATE | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || want * MIB / PAGE > sizeof there) return 0;
    at += -(size_t)at % (2 * MIB);
    madvise(at, want * MIB, MADV_HUGEPAGE);
    for (size_t i = 0; i < want; i += 2) at[i * MIB] = 1;
    if (mincore(at, want * MIB, there)) return 0;
    size_t pages = 0;
    for (size_t i = 0; i < want * MIB / PAGE; i++) pages += there[i] & 1;
    return pages * PAGE / MIB == want ? want : 0;
}

static size_t by_the_stack(void) {
    struct rlimit limit = {(want + 16) * MIB, RLIM_INFINITY};
    if (setrlimit(RLIMIT_STACK, &limit)) return 0;
    volatile char *room = alloca(want * MIB);
    for (size_t at = want * MIB; at > 0; at -= PAGE) room[at - 1] = 1;
    tell(want, stay);
    exit(0);
}

static void on_signal(int number) {
    (void)number;
    volatile char *room = alloca((want - 1) * MIB);
    for (size_t at = (want - 1) * MIB; at > 0; at -= PAGE) room[at - 1] = 1;
    tell(want, stay);
    _exit(0);
}

// Calls `work` on a stack that nobody has seen being mapped.
static size_t by_another_stack(void (*work)(int), int by_signal) {
    char *stack = raw(want * MIB, PRIVATE);
    if (by_signal) {
        stack_t alternate = {.ss_sp = stack, .ss_size = want * MIB};
        struct sigaction action = {.sa_handler = work, .sa_flags = SA_ONSTACK};
        if (sigaltstack(&alternate, NULL) || sigaction(SIGUSR1, &action, NULL)) return 0;
        raise(SIGUSR1);
    }
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack = (stack_t){.ss_sp = stack, .ss_size = want * MIB};
    makecontext(&context, (void (*)(void))work, 1, 0);
    setcontext(&context);
    return 0;
}

static size_t by_a_plug_in(void) {
    void *library = dlopen(plug_in, RTLD_NOW);
    char *bss = library ? dlsym(library, "roomy_data") : NULL;
    if (bss == NULL) return 0;
    touch(bss, want * MIB);
    return want;
}

// All at once, and gone before anybody can look.
static size_t by_haste(void) {
    char *at = raw(want * MIB, PRIVATE);
    touch(at, want * MIB);
    syscall(SYS_munmap, at, want * MIB);
    return want;
}

static const struct { const char *name; char *(*part)(void); } WAYS[] = {
    {"blocks", by_blocks}, {"mapping", by_mapping}, {"raw-mapping", by_raw_mapping}, {"raw-sharing", by_raw_sharing},
    {"reservation", by_reservation}, {"sbrk", by_sbrk}, {"raw-brk", by_raw_brk}, {"raw-segment", by_raw_segment},
    {"libcs-own", by_libcs_own}, {"libcs-own-small", by_libcs_own_small}, {"copies", by_copies_of_a_file},
    {"another-libc", by_another_libc}, {"large-pages", by_large_pages},
};

int main(int count, char **words) {
    if (count < 4) return 2;
    const char *way = words[1];
    want = strtoul(words[2], NULL, 10);
    stay = (unsigned)atoi(words[3]);
    plug_in = count > 4 ? words[4] : "";
    size_t taken = 0;
    if (!strcmp(way, "growth")) taken = by_growth();
    else if (!strcmp(way, "huge-pages")) taken = by_transparent_huge_pages();
    else if (!strcmp(way, "stack")) taken = by_the_stack();
    else if (!strcmp(way, "signal-stack")) taken = by_another_stack(on_signal, 1);
    else if (!strcmp(way, "context")) taken = by_another_stack(on_signal, 0);
    else if (!strcmp(way, "plug-in")) taken = by_a_plug_in();
    else if (!strcmp(way, "haste")) taken = by_haste();
    else
        for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
            if (!strcmp(way, WAYS[i].name)) taken = each(WAYS[i].part);
    if (taken == 0) return 9;
    tell(taken, stay);
    return 0;
}
