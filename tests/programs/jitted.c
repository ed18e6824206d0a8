// Code that is made while the program runs, as compilers at run time make it: without unwinding rules, and with its names in
// /tmp/perf-PID.map. One piece calls a function of the program that allocates 5001 bytes, another one calls malloc itself for
// 5002. The map stays.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *volatile kept[2];

__attribute__((noinline)) static void from_made(size_t size) {
    kept[0] = malloc(size);
    __asm__ volatile("" ::: "memory");
}

// sub $8, %rsp; mov %rdi, %rax; mov %rsi, %rdi; call *%rax; add $8, %rsp; ret
static const unsigned char piece[] = {0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3};

int main(void) {
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 1;
    char *one = code + 64, *other = code + 128;
    memcpy(one, piece, sizeof piece);
    memcpy(other, piece, sizeof piece);
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0) return 1;
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    if (!map) return 1;
    fprintf(map, "%lx %zx made: calls the program\n", (unsigned long)(uintptr_t)one, sizeof piece);
    fprintf(map, "%lx %zx made: calls malloc\n", (unsigned long)(uintptr_t)other, sizeof piece);
    fclose(map);
    void (*calls_program)(void (*)(size_t), size_t);
    void *(*calls_malloc)(void *(*)(size_t), size_t);
    memcpy(&calls_program, &one, sizeof one);
    memcpy(&calls_malloc, &other, sizeof other);
    calls_program(from_made, 5001);
    kept[1] = calls_malloc(malloc, 5002);
    puts(path);
    return 0;
}
