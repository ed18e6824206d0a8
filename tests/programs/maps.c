// Mapping calls and allocator settings between heap calls: they must pass through unchanged and disturb no count.
#include "truth.h"
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

int main(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    t_malloc(100);
    T_CHECK(mallopt(M_MMAP_THRESHOLD, 300000) == 1);
    char *m = (char *)mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_CHECK(m != MAP_FAILED);
    memset(m, 7, 8 * page);
    t_malloc(250000);
    T_CHECK(mprotect(m, page, PROT_NONE) == 0);
    T_CHECK(mprotect(m, page, PROT_READ | PROT_WRITE) == 0);
    T_CHECK(madvise(m + page, page, MADV_DONTNEED) == 0 && m[page] == 0 && m[2 * page] == 7);
    m = (char *)mremap(m, 8 * page, 64 * page, MREMAP_MAYMOVE);
    T_CHECK(m != MAP_FAILED && m[2 * page] == 7);
    void *fixed = mmap(NULL, 16 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *moved = mremap(m, 4 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_FIXED, fixed);
    T_CHECK(moved == fixed && ((char *)moved)[2 * page] == 7);
    T_CHECK(munmap(moved, 16 * page) == 0);
    T_CHECK(munmap(m + 4 * page, 60 * page) == 0);
    errno = 0;
    T_CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    errno = 0;
    T_CHECK(munmap((void *)1, page) == -1 && errno == EINVAL);
    t_free(t_calloc(100, 100));
    void *top = sbrk(0);
    T_CHECK(top != (void *)-1);
    T_CHECK(brk(top) == 0);
    T_CHECK(sbrk(0) == top);
    char name[] = "/truth-000000000";
    for (int i = 7, v = getpid(); v; v /= 10) name[i++] = (char)('0' + v % 10);
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    T_CHECK(fd >= 0 && shm_unlink(name) == 0 && ftruncate(fd, (off_t)page) == 0);
    m = (char *)mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    T_CHECK(m != MAP_FAILED && (m[0] = 3) == 3 && munmap(m, page) == 0 && close(fd) == 0);
    fd = memfd_create("truth", MFD_CLOEXEC);
    T_CHECK(fd >= 0 && close(fd) == 0);
    int id = shmget(IPC_PRIVATE, page, IPC_CREAT | 0600);
    if (id >= 0) {
        m = (char *)shmat(id, NULL, 0);
        T_CHECK(m != (char *)-1 && shmctl(id, IPC_RMID, NULL) == 0 && (m[1] = 1) == 1 && shmdt(m) == 0);
    }
    t_malloc(400000);
    for (int i = 0; i < 100; i++) t_free(t_malloc(100000));
    malloc_trim(0);
    t_free(t_malloc(1));
    return 0;
}
