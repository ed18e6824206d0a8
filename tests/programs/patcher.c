// patcher: a library that puts itself before calls of madvise, as MPI runtimes and UCX do before those of mapping
// functions. The program patched loads it and says where.
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int patcher_calls;

int patcher_madvise(void *start, size_t size, int advice) {
    patcher_calls++;
    return (int)syscall(SYS_madvise, start, size, advice);
}

// Puts over a function: movabs $patcher_madvise, %r11; jmp *%r11
int patcher_overwrite(void *function) {
    unsigned char code[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
    uintptr_t to = (uintptr_t)patcher_madvise, page = (uintptr_t)function & -4096UL;
    memcpy(code + 2, &to, sizeof to);
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return 1;
    memcpy(function, code, sizeof code);
    return mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
}
