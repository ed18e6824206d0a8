// large_stacks LIMIT: threads with more than a usual stack. Asks by blocks how much of the limit is left; exits with 1 when
// anything is wrong.
#define _GNU_SOURCE
#include "room.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t MIB = 1 << 20, LITTLE = 64 << 10;
static size_t limit, all;
static sem_t begun, over;
static int wrong;

static size_t left(void) { return room_below(limit + 1); }

// What libc takes for a thread is a little beside its stack.
static void expect(int line, size_t charged) {
    long more = (long)(all - left()) - (long)charged;
    if (more >= 0 && more < (long)LITTLE) return;
    printf("line %d: %ld bytes are charged beside %zu\n", line, more, charged);
    wrong = 1;
}
#define EXPECT(charged) expect(__LINE__, charged)
#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), (void)(wrong = 1)))

static void *stay(void *way_out) {
    sem_post(&begun);
    sem_wait(&over);
    if (way_out) pthread_exit(NULL);
    return NULL;
}

static int begin(pthread_t *thread, size_t stack, int is_detached, void *way_out) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack) pthread_attr_setstacksize(&attributes, stack);
    if (is_detached) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(thread, &attributes, stay, way_out);
    if (!error) sem_wait(&begun);
    pthread_attr_destroy(&attributes);
    return error;
}

static void end(pthread_t thread) {
    sem_post(&over);
    pthread_join(thread, NULL);
}

static int threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

int main(int count, char **words) {
    if (count != 2) return 2;
    limit = strtoull(words[1], NULL, 10);
    sem_init(&begun, 0, 0);
    sem_init(&over, 0, 0);
    pthread_t one, other;
    // What libc keeps from then on for threads and directories.
    CHECK(begin(&one, 0, 0, NULL) == 0);
    end(one);
    threads();
    all = left();
    CHECK(begin(&one, 0, 0, NULL) == 0);
    EXPECT(0);
    end(one);
    CHECK(begin(&one, 60 * MIB, 0, NULL) == 0);
    EXPECT(60 * MIB);
    CHECK(begin(&other, 60 * MIB, 0, NULL) == EAGAIN);
    EXPECT(60 * MIB);
    CHECK(begin(&other, 20 * MIB, 0, &other) == 0);
    EXPECT(80 * MIB);
    // Either may be woken first.
    sem_post(&over);
    end(one);
    pthread_join(other, NULL);
    EXPECT(0);
    for (int i = 0; i < 200; i++) {
        int error = begin(&one, 60 * MIB, i % 2, i % 3 ? &one : NULL);
        CHECK(error == 0);
        if (error) continue;
        if (i % 2) {
            sem_post(&over);
            while (threads() > 1) usleep(100);
        } else {
            end(one);
        }
    }
    EXPECT(0);
    // A stack of the program's own is charged as the mapping that it is.
    char *own = mmap(NULL, 40 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, own, 40 * MIB);
    CHECK(pthread_create(&one, &attributes, stay, NULL) == 0);
    sem_wait(&begun);
    EXPECT(40 * MIB);
    end(one);
    munmap(own, 40 * MIB);
    EXPECT(0);
    // Whoever is told of the end of another process's thread finds its stack free.
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(begin(&one, 60 * MIB, 0, NULL) == 0);
        end(one);
        CHECK(write(ends[1], "x", 1) == 1);
        for (;;) pause();
    }
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    usleep(100000);
    void *volatile block = malloc(60 * MIB);
    CHECK(block != NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (!wrong) puts("right");
    return wrong;
}
