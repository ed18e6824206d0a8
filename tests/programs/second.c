// A second opinion on call stacks: preloaded behind heaptape's library, it takes the stack of each allocation by
// libgcc's unwinder, and writes it to memory that is a file.
//
//     cc -O2 -shared -fPIC second.c -o second.so
//     SECOND_OUT=/dir/name LD_PRELOAD=second.so heaptape record --stacks -- COMMAND
//
// The file is SECOND_OUT.PROGRAM.PID; with SECOND_PROGRAM=NAME only that of programs with this name. It has for every
// SECOND_EVERY-th (1) call that allocates 64-bit words: the block's address, how many frames follow, the frames, the
// innermost first. An address 0 is the end. Frames of this library, and of heaptape's between it and the program, are left
// out. A forked child writes nothing. Only for programs with one thread.
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

static uint64_t *out, *end;
static unsigned long every = 1, calls;
static int inside;
static struct { uintptr_t low, high; } own[2];

struct walk {
    uint64_t *frames;
    int count, between;
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *data) {
    struct walk *walk = data;
    int before = 0;
    uintptr_t address = _Unwind_GetIPInfo(context, &before);
    if (walk->between)
        for (int i = 0; i < 2; i++)
            if (own[i].low <= address && address < own[i].high) return _URC_NO_REASON;
    walk->between = 0;
    if (walk->count == DEPTH || address == 0) return _URC_END_OF_STACK;
    // The address behind the call; of an interrupted instruction the next byte.
    walk->frames[walk->count++] = address + (before ? 1 : 0);
    return _URC_NO_REASON;
}

static void *made(void *block) {
    if (!out || inside || !block || calls++ % every || out + DEPTH + 3 > end) return block;
    inside = 1;
    struct walk walk = {out + 2, 0, 1};
    _Unwind_Backtrace(step, &walk);
    out[1] = walk.count;
    out[0] = (uintptr_t)block;
    out += 2 + walk.count;
    inside = 0;
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
    int is_ours = 0, is_heaptapes = strstr(info->dlpi_name, "heaptape") && strstr(info->dlpi_name, ".so");
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, stop = start + info->dlpi_phdr[i].p_memsz;
        if (start < low) low = start;
        if (stop > high) high = stop;
        is_ours |= start <= (uintptr_t)note && (uintptr_t)note < stop;
    }
    if (is_ours || is_heaptapes) own[is_ours].low = low, own[is_ours].high = high;
    return 0;
}

static void child(void) { out = 0; }

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
    uint64_t *room = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (room == MAP_FAILED) return;
    end = room + ROOM / sizeof *room;
    calls = 0;
    out = room;
}
