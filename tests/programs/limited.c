// limited as|data BYTES: sets that limit on its own memory, checks that it is told what it has set, and takes as much as it gets
// in blocks of 64 KiB: prints how many. limited lock: mlockall; prints what is locked, and what is resident of shared memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static int lock(void) {
    char line[256];
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) return 3;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmLck:", 6) || !strncmp(line, "RssShmem:", 9)) printf("%ld\n", strtol(strchr(line, ':') + 1, NULL, 10));
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "lock")) return lock();
    if (argc < 2) return 2;
    int resource = strcmp(argv[1], "as") ? RLIMIT_DATA : RLIMIT_AS;
    if (argc > 2) {
        struct rlimit set = {(rlim_t)atol(argv[2]), (rlim_t)atol(argv[2])}, told;
        if (setrlimit(resource, &set) || getrlimit(resource, &told)) return 4;
        if (memcmp(&set, &told, sizeof set)) return 5;
    }
    int count = 0;
    while (malloc(65536)) count++;
    printf("%d\n", count);
    return 0;
}
