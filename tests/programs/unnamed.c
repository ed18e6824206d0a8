// unnamed [made]: becomes a copy of itself that has no name, in memory alone; that makes 100 blocks of 4321 bytes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
extern char **environ;

int main(int argc, char **argv) {
    if (argc > 1) {
        for (int i = 0; i < 100; i++) free(malloc(4321));
        return 6;
    }
    struct stat about;
    int own = open("/proc/self/exe", O_RDONLY), copy = memfd_create("copy", MFD_CLOEXEC);
    if (own < 0 || copy < 0 || fstat(own, &about)) return 7;
    while (about.st_size > 0) {
        ssize_t sent = sendfile(copy, own, NULL, (size_t)about.st_size);
        if (sent <= 0) return 8;
        about.st_size -= sent;
    }
    char *args[] = {argv[0], "made", NULL};
    fexecve(copy, args, environ);
    return 9;
}
