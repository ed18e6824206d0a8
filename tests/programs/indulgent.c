// indulgent LIMIT LIBRARY OTHER THIRD: lets LIBRARY, which is exempt, take more than LIMIT, in every way, and finds out after each
// call by a block of its own how much of the limit is left. OTHER and THIRD
// are not exempt, and come one after another to where LIBRARY was. Says how often
// something was wrong; stops at once, with 7, where LIBRARY may not take what it wants.
#include "room.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
static size_t limit;
static int wrong;
static void *(*take)(size_t), *(*resize)(void *, size_t);
static void (*give)(void *);

static size_t left(void) { return room_below(limit + 1); }

static void expect(int line, long missing, size_t all) {
    const long rounding = 3 * 65536;
    long found = (long)all - (long)left();
    if (labs(found - missing) <= rounding) return;
    fprintf(stderr, "line %d: %ld bytes are charged, not %ld\n", line, found, missing);
    wrong++;
}
#define EXPECT(missing) expect(__LINE__, missing, all)

static void *load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) exit(3);
    take = (void *(*)(size_t))dlsym(library, "greedy_take");
    resize = (void *(*)(void *, size_t))dlsym(library, "greedy_resize");
    give = (void (*)(void *))dlsym(library, "greedy_give");
    return library;
}

static void across(size_t all) {
    char *large = take(300 * MIB);
    if (large == NULL) exit(7);
    memset(large, 5, 100);
    EXPECT(0);
    // One module's blocks are given back by the other.
    free(large);
    EXPECT(0);
    char *own = malloc(20 * MIB);
    EXPECT(20 * MIB);
    give(own);
    EXPECT(0);
    // And resized by it.
    own = malloc(20 * MIB);
    memset(own, 9, 20 * MIB);
    own = resize(own, 200 * MIB);
    if (own == NULL) exit(7);
    wrong += own[0] != 9 || own[20 * MIB - 1] != 9;
    EXPECT(0);
    if (realloc(own, 199 * MIB) != NULL) wrong++;
    EXPECT(0);
    own = realloc(own, 30 * MIB);
    wrong += own == NULL || own[20 * MIB - 1] != 9;
    EXPECT(30 * MIB);
    own = resize(own, 400 * MIB);
    own = resize(own, 10 * MIB);
    EXPECT(0);
    free(own);
    EXPECT(0);
}

static void many(size_t all) {
    static void *blocks[30000];
    for (int i = 0; i < 30000; i++) {
        blocks[i] = take(10000);
        if (blocks[i] == NULL) exit(7);
    }
    EXPECT(0);
    for (int i = 0; i < 30000; i++) {
        if (i % 2) free(blocks[i]);
        else give(blocks[i]);
    }
    EXPECT(0);
}

// A child has no part in what is charged nowhere, and goes on likewise.
static void forked(size_t all) {
    void *before = take(150 * MIB);
    pid_t child = fork();
    if (child == 0) {
        size_t all = left();
        free(before);
        EXPECT(0);
        void *more = take(180 * MIB);
        if (more == NULL) _exit(7);
        EXPECT(0);
        free(more);
        _exit(wrong);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) wrong++;
    // (The collector gives back what the dead child held, soon.)
    for (int i = 0; i < 5000 && left() + 65536 < all; i++) usleep(1000);
    EXPECT(0);
    free(before);
    EXPECT(0);
}

int main(int count, char **words) {
    if (count != 5) return 2;
    limit = strtoull(words[1], NULL, 10);
    void *library = load(words[2]);
    free(take(100 * MIB));
    size_t all = left();
    across(all);
    many(all);
    forked(all);
    void *kept = take(40 * MIB);
    dlclose(library);
    library = load(words[3]);
    void *refused = take(limit);
    wrong += refused != NULL;
    void *block = take(10 * MIB);
    EXPECT(10 * MIB);
    free(kept);
    free(block);
    EXPECT(0);
    dlclose(library);
    library = load(words[4]);
    free(take(5 * MIB));
    dlclose(library);
    printf("%d\n", wrong);
    return 0;
}
