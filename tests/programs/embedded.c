// embedded LIBRARY: loads an interpreter of Python, runs a line of it and closes it, two times; before, between and behind
// it makes blocks of a size of its own. Prints 3 where the library is really gone in the end, 2 where it stays.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *volatile block;

static void make(void) {
    for (int i = 0; i < 1000; i++) free(block), block = malloc(778);
}

int main(int count, char **words) {
    if (count != 2) return 2;
    make();
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 3;
        void (*begin)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
        int (*run)(const char *) = (int (*)(const char *))dlsym(library, "PyRun_SimpleString");
        int (*end)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
        if (!begin || !run || !end) return 4;
        begin(0);
        if (run("def build(): return [bytearray(5000) for _ in range(100)]\nkept = build()\n")) return 5;
        if (end()) return 6;
        dlclose(library);
        make();
    }
    printf("%d\n", dlopen(words[1], RTLD_NOW | RTLD_NOLOAD) ? 2 : 3);
    return 0;
}
