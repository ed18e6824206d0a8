// opening LIMIT LIBRARY COPY UNLOADABLE: what the data of loaded libraries takes, from the moment on that they are there.
//
// LIBRARY and COPY have 40 MiB of data each, UNLOADABLE has 30 MiB and can't be loaded at once. Exits with 1 when
// anything is wrong.
#include "room.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const size_t DATA = 40 << 20, LITTLE = 64 << 10;
static size_t limit;
static int wrong;

static size_t left(void) { return room_below(limit + 1); }

// So many bytes were left, and these less are left now, but for the loader's own lists.
static void expect(int line, size_t before, size_t less) {
    size_t now = left();
    if (before - now >= less && before - now < less + LITTLE) return;
    if (now >= before && less == 0 && now - before < LITTLE) return;
    printf("line %d: %zu bytes were left and now %zu\n", line, before, now);
    wrong = 1;
}
#define EXPECT(before, less) expect(__LINE__, before, less)
#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), (void)(wrong = 1)))

int main(int count, char **words) {
    if (count != 5) return 2;
    limit = strtoull(words[1], NULL, 10);
    size_t all = left();
    void *one = dlopen(words[2], RTLD_NOW);
    CHECK(one != NULL);
    EXPECT(all, DATA);
    void *volatile block = malloc(left() - DATA / 2);
    CHECK(block != NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(dlopen(words[3], RTLD_NOW) == NULL);
        const char *why = dlerror();
        CHECK(why != NULL && strstr(why, "memory") != NULL);
        EXPECT(DATA / 2, 0);
    }
    free(block);
    CHECK(dlopen(words[4], RTLD_NOW) == NULL);
    free(strdup(dlerror()));
    EXPECT(all, DATA);
    void *other = dlopen(words[3], RTLD_NOW);
    CHECK(other != NULL);
    EXPECT(all, 2 * DATA);
    CHECK(dlclose(other) == 0);
    EXPECT(all, DATA);
    CHECK(dlclose(one) == 0);
    EXPECT(all, 0);
    if (!wrong) puts("right");
    return wrong;
}
