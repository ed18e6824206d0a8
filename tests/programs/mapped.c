// mapped: every call that maps memory, failing ones too, each behind a malloc of its own size. For each a line goes to the file
// that $TRUTH names: the size, then the call as `heaptape events --notes --json` should show it. Narrow arguments and results
// stand as they are, extended by their sign.
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

static int truth;
static size_t size = 1000;

static void tell(const char *name, const char *text, const uint64_t *args, int count) {
    dprintf(truth, "{\"size\":%zu,\"note\":\"%s\",\"text\":\"%s\",\"args\":[", size, name, text);
    for (int i = 0; i < count; i++) dprintf(truth, "%s%lu", i ? "," : "", args[i]);
    dprintf(truth, "]}\n");
}

#define WORD(x) ((uint64_t)(x))
#define INT(x) ((uint64_t)(int64_t)(int)(x))
// Makes a block, makes the call, and tells it with its arguments and the result, which is a WORD or an INT.
#define CALL(name, text, result, call, ...) ({ \
    void *volatile block = malloc(++size); \
    uint64_t got = result(call); \
    uint64_t args[] = {__VA_ARGS__ __VA_OPT__(,) got}; \
    tell(name, text, args, (int)(sizeof args / sizeof *args)); \
    (void)block; \
    got; })
#define MAP(address, length, protection, flags, fd) (char *)CALL("mmap", "", WORD, mmap(address, length, protection, flags, fd, 0), \
    WORD(address), WORD(length), INT(protection), INT(flags), INT(fd), 0)
#define UNMAP(address, length) CALL("munmap", "", INT, munmap(address, length), WORD(address), WORD(length))

int main(void) {
    const char *path = getenv("TRUTH");
    truth = open(path ? path : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (truth < 0) return 2;
    enum { RW = PROT_READ | PROT_WRITE, ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *m = MAP(NULL, 8 * page, RW, ANONYMOUS, -1);
    CALL("mprotect", "", INT, mprotect(m, page, PROT_NONE), WORD(m), page, INT(PROT_NONE));
    CALL("mprotect", "", INT, mprotect(m, page, RW), WORD(m), page, INT(RW));
    CALL("madvise", "", INT, madvise(m + page, page, MADV_DONTNEED), WORD(m + page), page, INT(MADV_DONTNEED));
    CALL("madvise", "", INT, madvise(m + 1, page, MADV_DONTNEED), WORD(m + 1), page, INT(MADV_DONTNEED));
    char *fixed = MAP(NULL, 16 * page, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1);
    CALL("mremap", "", WORD, mremap(m, 4 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_FIXED, fixed), WORD(m), 4 * page, 4 * page,
         INT(MREMAP_MAYMOVE | MREMAP_FIXED), WORD(fixed));
    UNMAP(fixed, 16 * page);
    UNMAP(m + 4 * page, 4 * page);
    UNMAP((void *)1, page);
    (void)MAP(NULL, 0, PROT_READ, ANONYMOUS, -1);
    (void)MAP(NULL, page, PROT_READ, MAP_SHARED, 999);
    char *top = (char *)CALL("sbrk", "", WORD, sbrk(0), 0);
    CALL("brk", "", INT, brk(top), WORD(top));
    char name[40];
    snprintf(name, sizeof name, "/mapped-%d", (int)getpid());
    int fd = (int)CALL("shm_open", name, INT, shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600), INT(O_CREAT | O_EXCL | O_RDWR), 0600);
    if (fd >= 0 && shm_unlink(name) == 0 && ftruncate(fd, (off_t)page) == 0) {
        m = MAP(NULL, page, RW, MAP_SHARED, fd);
        UNMAP(m, page);
    }
    CALL("shm_open", "/not/there", INT, shm_open("/not/there", O_RDONLY, 0), INT(O_RDONLY), 0);
    CALL("memfd_create", "truth", INT, memfd_create("truth", MFD_CLOEXEC), INT(MFD_CLOEXEC));
    int id = (int)CALL("shmget", "", INT, shmget(IPC_PRIVATE, page, IPC_CREAT | 0600), INT(IPC_PRIVATE), page, INT(IPC_CREAT | 0600));
    if (id >= 0) {
        m = (char *)CALL("shmat", "", WORD, shmat(id, NULL, 0), INT(id), 0, 0);
        shmctl(id, IPC_RMID, NULL);
        CALL("shmdt", "", INT, shmdt(m), WORD(m));
    }
    CALL("shmat", "", WORD, shmat(-1, NULL, 0), INT(-1), 0, 0);
    CALL("mallopt", "", INT, mallopt(M_MMAP_THRESHOLD, 300000), INT(M_MMAP_THRESHOLD), 300000);
    CALL("malloc_trim", "", INT, malloc_trim(4096), 4096);
    return 0;
}
