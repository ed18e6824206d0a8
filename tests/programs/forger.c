// forger WAY MIB MILLISECONDS: writes over what counts it, takes so much by malloc, tells how much it got and stays.
//   pages FILL  every shared page that the library has mapped, with zeros or ones
//   words BYTES every word in them that is so large becomes larger
//   noise SEED  random words, in few places or in many
//   code        the begin of our malloc becomes a jump to libc's own
//   number FILE another process, whose number the file gets, is one of the job's, too; before it takes anything
// 9: the way does not exist here.
#define _GNU_SOURCE
#include "taken.h"
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>

extern void *__libc_malloc(size_t bytes);

// Does `change` with every shared mapping of memory that may be written to.
static int in_shared_pages(void (*change)(char *from, char *to)) {
    static char lines[1 << 20];
    FILE *maps = fopen("/proc/self/maps", "r");
    if (maps == NULL) return 0;
    size_t length = fread(lines, 1, sizeof lines - 1, maps);
    fclose(maps);
    lines[length] = 0;
    int found = 0;
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long from, to;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3 && !strcmp(access, "rw-s")) {
            change((char *)from, (char *)to);
            found++;
        }
    }
    return found;
}

static uint64_t limit;

static void zero(char *from, char *to) { memset(from, 0, (size_t)(to - from)); }
static void fill(char *from, char *to) { memset(from, 0xff, (size_t)(to - from)); }
static void raise_words(char *from, char *to) {
    for (uint64_t *at = (uint64_t *)from; at < (uint64_t *)to; at++)
        if (*at == limit) *at = (uint64_t)1 << 40;
}

static uint64_t next_random(void) {
    static uint64_t state;
    if (state == 0) state = limit * 2 + 1;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

// Few words or many, by the seed: what is written may be believed for a while.
static void noise(char *from, char *to) {
    for (uint64_t *at = (uint64_t *)from; at < (uint64_t *)to; at++) {
        uint64_t random = next_random();
        if ((random & ((1u << limit % 12) - 1)) == 0) *at = random >> (random >> 12) % 64;
    }
}

static uint64_t bystander;
static int done_with_other;

// Whether a page has memory: a look at one that has none would take some.
static int is_there(char *at) {
    static char *page;
    static unsigned char in_memory;
    char *begin = (char *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
    if (begin != page && mincore(page = begin, PAGE, &in_memory)) in_memory = 0;
    return in_memory & 1;
}

// Fills the next free place of the table in which this process has its own, with what stands in that.
static void register_other(char *from, char *to) {
    enum { SLOT = 8192, SAID = 12 };
    const uint64_t free_one = (uint64_t)1 << 32, live = (uint64_t)3 << 32;
    char *own = from;
    while (own < to && !(is_there(own) && *(uint64_t *)own == (live | (uint64_t)getpid()))) own += 64;
    for (char *at = own + SLOT; own < to && at < to; at += SLOT)
        if (is_there(at) && *(uint64_t *)at == free_one) {
            memcpy(at + SAID, own + SAID, SLOT - SAID);
            *(volatile uint64_t *)at = live | bystander;
            done_with_other = 1;
            return;
        }
}

static int register_bystander(const char *file) {
    for (int tries = 0; tries < 3000 && bystander == 0; tries++) {
        FILE *told = fopen(file, "r");
        unsigned long pid;
        if (told != NULL && fscanf(told, "%lu\n", &pid) == 1) bystander = pid;
        if (told != NULL) fclose(told);
        usleep(10000);
    }
    if (bystander == 0 || !in_shared_pages(register_other)) return 0;
    // Until that was believed, and looked at.
    usleep(500000);
    return done_with_other;
}

static int jump(void) {
    unsigned char *entry = dlsym(RTLD_DEFAULT, "malloc");
    if (entry == NULL) return 0;
    char *page = (char *)((uintptr_t)entry & ~(uintptr_t)(PAGE - 1));
    if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC)) return 0;
    // mov rax, target; jmp rax
    unsigned char code[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void *(*target)(size_t) = __libc_malloc;
    memcpy(code + 2, &target, 8);
    memcpy(entry, code, sizeof code);
    return mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC) == 0;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    const char *way = words[1];
    size_t want = strtoul(words[2], NULL, 10);
    limit = count > 4 ? strtoull(words[4], NULL, 10) : 0;
    int done = 0;
    if (!strcmp(way, "zeros")) done = in_shared_pages(zero);
    else if (!strcmp(way, "ones")) done = in_shared_pages(fill);
    else if (!strcmp(way, "words")) done = in_shared_pages(raise_words);
    else if (!strcmp(way, "noise")) done = in_shared_pages(noise);
    else if (!strcmp(way, "code")) done = jump();
    else if (!strcmp(way, "number") && count > 4) done = register_bystander(words[4]);
    if (!done) return 9;
    tell(take_blocks(want), (unsigned)atoi(words[3]));
    return 0;
}
