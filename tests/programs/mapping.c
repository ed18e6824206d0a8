// mapping LIMIT: maps memory in every way, and after each call asks by blocks how much of the limit is left, to the byte. What
// is missing must be what the program has mapped and can write to, by its own arithmetic. Exits with 1 when anything is wrong.
#define _GNU_SOURCE
#include "charged.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS };

static char *map(size_t pages, int protection, int flags) {
    return mmap(NULL, pages * PAGE, protection, ANONYMOUS | flags, -1, 0);
}

static void plain(void) {
    char *m = map(10, RW, 0);
    EXPECT(10);
    CHECK(munmap(m + 3 * PAGE, 2 * PAGE) == 0);
    EXPECT(8);
    CHECK(munmap(m, 10 * PAGE) == 0);
    EXPECT(0);
    CHECK(munmap(m, 10 * PAGE) == 0);
    EXPECT(0);
    m = mmap(NULL, 5 * PAGE - 100, RW, ANONYMOUS, -1, 0);
    EXPECT(5);
    CHECK(munmap(m, 4 * PAGE + 1) == 0);
    EXPECT(0);
    CHECK(mmap(NULL, 0, RW, ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(munmap((void *)1, PAGE) == -1 && errno == EINVAL);
    m = map(4, PROT_READ, 0);
    EXPECT(0);
    CHECK(mprotect(m + PAGE, 2 * PAGE, RW) == 0);
    EXPECT(2);
    CHECK(mprotect(m, 4 * PAGE, PROT_NONE) == 0);
    EXPECT(2);
    CHECK(mprotect(m, 4 * PAGE, RW) == 0);
    EXPECT(4);
    CHECK(munmap(m, 4 * PAGE) == 0);
    EXPECT(0);
}

static void reserved(void) {
    size_t huge = (size_t)16 << 40, start = (size_t)5 << 32;
    char *m = mmap(NULL, huge, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(m != MAP_FAILED);
    EXPECT(0);
    // Across an edge of 4 GiB, whatever the kernel chose.
    char *edge = (char *)(((uintptr_t)m + start) >> 32 << 32);
    CHECK(mprotect(edge - 3 * PAGE, 7 * PAGE, RW) == 0);
    EXPECT(7);
    edge[0] = 1;
    CHECK(mmap(edge, 2 * PAGE, PROT_NONE, ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == edge);
    EXPECT(5);
    CHECK(mmap(edge + 1024 * PAGE, 100 * PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) == edge + 1024 * PAGE);
    EXPECT(105);
    errno = 0;
    CHECK(mprotect(edge + (1 << 30), limit, RW) == -1 && errno == ENOMEM);
    EXPECT(105);
    CHECK(munmap(m, huge) == 0);
    EXPECT(0);
    m = map(1000, RW, MAP_NORESERVE);
    EXPECT(0);
    CHECK(munmap(m, 1000 * PAGE) == 0);
}

static void fixed(void) {
    char *m = map(20, RW, 0);
    CHECK(mmap(m + 5 * PAGE, 10 * PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) == m + 5 * PAGE);
    EXPECT(20);
    CHECK(mmap(m + 5 * PAGE, 5 * PAGE, PROT_READ, ANONYMOUS | MAP_FIXED, -1, 0) == m + 5 * PAGE);
    EXPECT(15);
    CHECK(mprotect(m, 20 * PAGE, RW) == 0);
    EXPECT(20);
    CHECK(munmap(m, 20 * PAGE) == 0);
    // All that is left, again in the same place.
    size_t pages = all / PAGE;
    m = map(pages, RW, 0);
    CHECK(m != MAP_FAILED);
    EXPECT((long)pages);
    CHECK(mmap(m, pages * PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) == m);
    errno = 0;
    CHECK(map(1, RW, 0) == MAP_FAILED && errno == ENOMEM);
    EXPECT((long)pages);
    CHECK(munmap(m, pages * PAGE) == 0);
    EXPECT(0);
}

static void moved(void) {
    char *m = map(8, RW, 0), *hole = map(64, PROT_NONE, 0);
    m = mremap(m, 8 * PAGE, 4 * PAGE, 0);
    EXPECT(4);
    m = mremap(m, 4 * PAGE, 40 * PAGE, MREMAP_MAYMOVE);
    CHECK(m != MAP_FAILED);
    EXPECT(40);
    CHECK(mremap(m, 40 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, hole) == hole);
    EXPECT(10);
    CHECK(munmap(m, 40 * PAGE) == 0);
    EXPECT(10);
    errno = 0;
    CHECK(mremap(hole, 10 * PAGE, 60 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
    EXPECT(10);
    errno = 0;
    CHECK(mremap(hole, 10 * PAGE, limit, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
    EXPECT(10);
    char *twice = mremap(hole, 10 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(twice != MAP_FAILED);
    EXPECT(20);
    CHECK(mremap(twice, 10 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, hole) == hole);
    EXPECT(10);
    CHECK(munmap(hole, 64 * PAGE) == 0);
    EXPECT(0);
}

static void ends(void) {
    char *end = sbrk(0);
    CHECK(sbrk(100 * PAGE) == end);
    EXPECT(100);
    CHECK(brk(end + 30 * PAGE) == 0);
    EXPECT(30);
    errno = 0;
    CHECK(sbrk((intptr_t)limit) == (void *)-1 && errno == ENOMEM);
    CHECK(sbrk(-30 * PAGE) == end + 30 * PAGE);
    EXPECT(0);
}

// Both threads are there before either unmaps: else the second one's stack could be what it unmaps.
static char *area;
static pthread_barrier_t both;
static void *unmap(void *unused) {
    (void)unused;
    pthread_barrier_wait(&both);
    CHECK(munmap(area, 1000 * PAGE) == 0);
    return NULL;
}

static void threads(int rounds) {
    for (int round = 0; round < rounds; round++) {
        area = map(1000, RW, 0);
        pthread_barrier_init(&both, NULL, 2);
        pthread_t two[2];
        for (int i = 0; i < 2; i++) CHECK(pthread_create(&two[i], NULL, unmap, NULL) == 0);
        for (int i = 0; i < 2; i++) CHECK(pthread_join(two[i], NULL) == 0);
    }
}

// What a child shares is its parent's; what it makes, or unmaps and makes again, is its own.
static void forked(void) {
    char *m = map(100, RW, 0), *none = map(10, PROT_NONE, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(100 + OWN);
        CHECK(munmap(m, 50 * PAGE) == 0 && mprotect(m + 50 * PAGE, 50 * PAGE, RW) == 0);
        EXPECT(100 + OWN);
        CHECK(map(7, RW, 0) != MAP_FAILED && mprotect(none, 10 * PAGE, RW) == 0);
        EXPECT(117 + OWN);
        fflush(stdout);
        _exit(wrong);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    // (The collector gives back what the dead child held, soon.)
    for (int i = 0; i < 5000 && left() != all - 100 * PAGE; i++) usleep(1000);
    EXPECT(100);
    CHECK(munmap(m, 100 * PAGE) == 0 && munmap(none, 10 * PAGE) == 0);
    EXPECT(0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    limit = strtoul(argv[1], NULL, 10);
    setvbuf(stdout, NULL, _IOLBF, 1024);
    printf("begin\n");
    threads(1); // libc keeps what it has for them
    all = left();
    plain();
    reserved();
    fixed();
    moved();
    ends();
    threads(100);
    EXPECT(0);
    forked();
    return wrong;
}
