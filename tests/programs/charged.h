// Programs that know to the byte what they are charged for: what is missing of the room that they had at their begin.
#pragma once
#include "room.h"
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

enum { RW = PROT_READ | PROT_WRITE, PAGE = 4096 };
// What a process is charged for its reserve and its stacks, in pages.
enum { OWN = 8 + 16 };
static size_t limit, all;
static int wrong;

static size_t left(void) { return room_below(limit + 1); }

static void expect(int line, long pages) {
    long missing = (long)(all - left());
    if (missing == pages * PAGE) return;
    printf("line %d: %ld bytes are charged, not %ld\n", line, missing, pages * PAGE);
    wrong = 1;
}
#define EXPECT(pages) expect(__LINE__, pages)
#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s, errno %d\n", __LINE__, #what, errno), (void)(wrong = 1)))
