// lookup: dlsym must find libc's own mapping calls, as MPI libraries patch what they find; the program's calls are seen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    static const char *const names[] = {"mmap", "mmap64", "munmap", "mremap", "mprotect", "madvise",
                                        "brk", "sbrk", "shmat", "shmdt", "shmget"};
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *its = dlsym(libc, names[i]);
        if (!its || dlsym(RTLD_DEFAULT, names[i]) != its || dlsym(RTLD_NEXT, names[i]) != its) {
            printf("%s is not libc's\n", names[i]);
            return 1;
        }
    }
    void *p = mmap(NULL, 0x543000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return munmap(p, 0x543000) != 0;
}
