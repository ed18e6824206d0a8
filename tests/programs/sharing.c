// sharing LIMIT: maps memory that processes share, of every kind, in two processes and in pieces, and asks by blocks how much of
// the limit is left, to the byte: each object counts once, from its first mapping to its last unmapping. Exits with 1 when
// anything is wrong.
#define _GNU_SOURCE
#include "charged.h"
#include <fcntl.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 256 };
static const size_t bytes = (size_t)PAGES * PAGE;

static char *map(int fd, size_t length, size_t offset) {
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(NULL, length, RW, flags, fd, (off_t)offset);
}

// The collector gives back what a dead process held, soon.
static void await(long pages) {
    for (int i = 0; i < 5000 && left() != all - (size_t)pages * PAGE; i++) usleep(1000);
}

// A child that has what its parent has; `parting` tells whether it unmaps it before it ends.
static void in_child(char *m, size_t length, int parting) {
    int to_child[2], to_parent[2];
    char byte = 0;
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(to_parent[1], &byte, 1) == 1 && read(to_child[0], &byte, 1) == 1);
        // The parent has unmapped it: the child has it still.
        EXPECT((long)(length / PAGE) + OWN);
        m[length - 1] = 1;
        if (parting) {
            CHECK(munmap(m, length) == 0);
            EXPECT(OWN);
        }
        fflush(stdout);
        _exit(wrong);
    }
    CHECK(read(to_parent[0], &byte, 1) == 1 && munmap(m, length) == 0);
    CHECK(write(to_child[1], &byte, 1) == 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(to_child[0]), close(to_child[1]), close(to_parent[0]), close(to_parent[1]);
    await(0);
    EXPECT(0);
}

static void nameless(void) {
    char *m = map(-1, bytes, 0), *other = map(-1, bytes, 0);
    EXPECT(2 * PAGES);
    CHECK(munmap(m, bytes) == 0 && munmap(other + bytes / 2, bytes / 2) == 0);
    EXPECT(PAGES);
    CHECK(munmap(other, bytes / 2) == 0);
    EXPECT(0);
    for (int parting = 0; parting < 2; parting++) in_child(map(-1, bytes, 0), bytes, parting);
}

static void of_file(int fd) {
    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    EXPECT(0);
    char *m = map(fd, bytes, 0), *again = map(fd, bytes, 0);
    CHECK(m != MAP_FAILED && again != MAP_FAILED);
    EXPECT(PAGES);
    CHECK(munmap(m, bytes) == 0);
    EXPECT(PAGES);
    m = map(fd, 2 * bytes, 0);
    EXPECT(2 * PAGES);
    m = mremap(m, 2 * bytes, 3 * bytes, MREMAP_MAYMOVE);
    CHECK(m != MAP_FAILED);
    EXPECT(3 * PAGES);
    CHECK(munmap(m, 3 * bytes) == 0 && munmap(again, bytes / 2) == 0);
    EXPECT(3 * PAGES);
    CHECK(mmap(again + bytes / 2, bytes / 2, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == again + bytes / 2);
    EXPECT(PAGES / 2);
    CHECK(munmap(again, bytes) == 0);
    EXPECT(0);
    errno = 0;
    CHECK(map(fd, limit, 0) == MAP_FAILED && errno == ENOMEM);
    EXPECT(0);
    for (int parting = 0; parting < 2; parting++) in_child(map(fd, bytes, 0), bytes, parting);
    CHECK(close(fd) == 0);
}

static void segment(void) {
    int id = shmget(IPC_PRIVATE, bytes - 100, IPC_CREAT | 0600);
    if (id < 0) return;
    EXPECT(0);
    char *m = shmat(id, NULL, 0), *again = shmat(id, NULL, SHM_RDONLY);
    EXPECT(PAGES);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmdt(m) == 0);
    EXPECT(PAGES);
    m = shmat(id, NULL, 0);
    CHECK(shmdt(again) == 0);
    EXPECT(PAGES);
    CHECK(shmdt(m) == 0);
    EXPECT(0);
}

// Several processes map and unmap one object at once, again and again; some are killed at it.
static void crowd(void) {
    int fd = memfd_create("crowd", 0);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    pid_t children[6];
    for (int i = 0; i < 6; i++) {
        fflush(stdout);
        children[i] = fork();
        if (children[i] > 0) continue;
        for (int round = 0; round < 2000 || i < 2; round++) {
            char *m = map(fd, bytes, 0);
            if (m == MAP_FAILED || munmap(m, bytes) != 0) _exit(1);
        }
        _exit(0);
    }
    usleep(30000);
    for (int i = 0; i < 6; i++) {
        int status;
        if (i < 2) kill(children[i], SIGKILL);
        CHECK(waitpid(children[i], &status, 0) == children[i] && (i < 2 || status == 0));
    }
    await(0);
    EXPECT(0);
    close(fd);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    limit = strtoul(argv[1], NULL, 10);
    setvbuf(stdout, NULL, _IOLBF, 1024);
    printf("begin\n");
    all = left();
    nameless();
    of_file(memfd_create("sharing", 0));
    char name[40];
    snprintf(name, sizeof name, "/sharing-%d", (int)getpid());
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    shm_unlink(name);
    of_file(fd);
    segment();
    crowd();
    return wrong;
}
