// loads DIRECTORY N: loads DIRECTORY/0.so to N-1.so one after the other, mallocs in between, then unloads them, the first first.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int count = atoi(argv[2]);
    void *libraries[1000];
    for (int i = 0; i < count && i < 1000; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.so", argv[1], i);
        libraries[i] = dlopen(path, RTLD_NOW);
        if (!libraries[i]) return 3;
        free(malloc(20));
    }
    for (int i = 0; i < count && i < 1000; i++) {
        if (dlclose(libraries[i])) return 4;
        free(malloc(20));
    }
    return 0;
}
