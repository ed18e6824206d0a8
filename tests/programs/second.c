// A second opinion on call stacks: preloaded behind heaptape's library, it takes the stack of each allocation by
// libgcc's unwinder, and writes it to memory that is a file.
//
//     cc -O2 -shared -fPIC second.c -o second.so
//     SECOND_OUT=/dir/name LD_PRELOAD=second.so heaptape record --stacks -- COMMAND
//
// The file is SECOND_OUT.PROGRAM.PID; with SECOND_PROGRAM=NAME only that of programs with this name. It has for every
// SECOND_EVERY-th (1) call of a thread that gave a block 64-bit words: the block's address, with the thread's number (in
// the order of their first calls) in the upper 16 bits; how many frames follow, up to 128; the frames, the innermost first: the
// address behind each call, and of an interrupted instruction the next byte. The calls of a thread are in their order. A word 0
// is the end. Frames of this library and of heaptape's are left out, and those between them: of an operator new. A
// forked child writes nothing, nor does a signal handler that comes while a stack is taken.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

enum { DEPTH = 128, ROOM = 1 << 30 };

static uint64_t *room;
static size_t used, threads;
static unsigned long every = 1;
// Where this library is, heaptape's, and the one that operator new is in.
enum { OWN, HEAPTAPE, NEW, MODULES };
static struct { uintptr_t low, high; } modules[MODULES];

struct walk {
    uint64_t frames[DEPTH];
    size_t count;
};

// A preloaded library's own variables of a thread need no memory that is asked for later.
#define MINE static __thread __attribute__((tls_model("initial-exec")))
MINE struct walk walk;
MINE unsigned long calls;
MINE uint64_t thread;
MINE volatile int inside;

static int is_in(int module, uintptr_t address) {
    return modules[module].low <= address && address < modules[module].high;
}

static int all_are_news(void) {
    for (size_t i = 0; i < walk.count; i++)
        if (!is_in(NEW, walk.frames[i])) return 0;
    return 1;
}

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *data) {
    (void)data;
    int before = 0;
    uintptr_t address = _Unwind_GetIPInfo(context, &before);
    if (is_in(OWN, address) || is_in(HEAPTAPE, address)) {
        if (all_are_news()) walk.count = 0;
        return _URC_NO_REASON;
    }
    if (walk.count == DEPTH || address == 0) return _URC_END_OF_STACK;
    walk.frames[walk.count++] = address + (before ? 1 : 0);
    return _URC_NO_REASON;
}

static void write_down(void *block) {
    if (!thread) thread = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    walk.count = 0;
    _Unwind_Backtrace(step, 0);
    size_t start = __atomic_fetch_add(&used, 2 + walk.count, __ATOMIC_RELAXED);
    if (start + 2 + walk.count >= ROOM / sizeof *room) return;
    uint64_t *out = room + start;
    out[0] = (uintptr_t)block | (thread - 1) << 48;
    out[1] = walk.count;
    memcpy(out + 2, walk.frames, walk.count * sizeof *out);
}

static void *made(void *block) {
    if (!room || inside || !block || calls++ % every) return block;
    int error = errno;
    inside = 1;
    write_down(block);
    inside = 0;
    errno = error;
    return block;
}

#define NEXT(name, type, params)                                 \
    static type(*next) params;                                   \
    if (!next) next = (type(*) params)dlsym(RTLD_NEXT, #name)

void *malloc(size_t size) {
    NEXT(malloc, void *, (size_t));
    return made(next(size));
}

void *calloc(size_t count, size_t size) {
    extern void *__libc_calloc(size_t, size_t);
    return made(__libc_calloc(count, size));
}

void *realloc(void *block, size_t size) {
    NEXT(realloc, void *, (void *, size_t));
    return made(next(block, size));
}

void *reallocarray(void *block, size_t count, size_t size) {
    NEXT(reallocarray, void *, (void *, size_t, size_t));
    return made(next(block, count, size));
}

void *valloc(size_t size) {
    NEXT(valloc, void *, (size_t));
    return made(next(size));
}

void *pvalloc(size_t size) {
    NEXT(pvalloc, void *, (size_t));
    return made(next(size));
}

void *memalign(size_t align, size_t size) {
    NEXT(memalign, void *, (size_t, size_t));
    return made(next(align, size));
}

void *aligned_alloc(size_t align, size_t size) {
    NEXT(aligned_alloc, void *, (size_t, size_t));
    return made(next(align, size));
}

int posix_memalign(void **block, size_t align, size_t size) {
    NEXT(posix_memalign, int, (void **, size_t, size_t));
    int error = next(block, align, size);
    if (!error) made(*block);
    return error;
}

static int note(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size, (void)data;
    int module = strstr(info->dlpi_name, "libheaptape") ? HEAPTAPE : MODULES;
    if (strstr(info->dlpi_name, "libstdc++")) module = NEW;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, stop = start + info->dlpi_phdr[i].p_memsz;
        if (start < low) low = start;
        if (stop > high) high = stop;
        if (start <= (uintptr_t)note && (uintptr_t)note < stop) module = OWN;
    }
    if (module != MODULES) modules[module].low = low, modules[module].high = high;
    return 0;
}

static void child(void) { room = 0; }

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SECOND_OUT"), *only = getenv("SECOND_PROGRAM"), *step_by = getenv("SECOND_EVERY");
    char path[4096];
    if (!name || (only && strcmp(only, program_invocation_short_name))) return;
    if (step_by && atol(step_by) > 0) every = atol(step_by);
    snprintf(path, sizeof path, "%s.%s.%d", name, program_invocation_short_name, getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, ROOM)) return;
    dl_iterate_phdr(note, 0);
    pthread_atfork(0, 0, child);
    void *mapped = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    // libgcc's unwinder may ask for memory when it is first used.
    inside = 1;
    _Unwind_Backtrace(step, 0);
    inside = 0;
    if (mapped != MAP_FAILED) room = mapped;
}
