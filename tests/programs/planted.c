// A program with a fault of the kind that its argument names, or with all of them, among work that comes and
// goes; it prints what it knows of the fault, as words of a line: bytes, blocks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
#define ROUNDS 20000
#define KEPT 64

static unsigned long bytes, blocks;
static void *volatile sink;

// Keeps what it takes, and never gives it back.
NOINLINE static void remember(unsigned long n) {
    struct note { struct note *next; char text[200]; };
    static struct note *all;
    struct note *note = malloc(sizeof *note);
    note->next = all;
    all = note;
    bytes += sizeof *note;
    blocks += 1;
    sink = note;
    (void)n;
}

// Takes a lot for a moment.
NOINLINE static void load_at_once(void) {
    void *parts[32];
    for (int i = 0; i < 32; i++) {
        parts[i] = malloc(1 << 20);
        bytes += 1 << 20;
        blocks += 1;
        memset(parts[i], 1, 4096);
    }
    for (int i = 0; i < 32; i++) free(parts[i]);
}

// Takes a piece for each word and gives it back before anything else is taken.
NOINLINE static void copy_words(void) {
    for (int i = 0; i < 10; i++) {
        char *word = malloc(40);
        bytes += 40;
        blocks += 1;
        sink = word;
        free(word);
    }
}

// The work of the program: the pieces it holds at a time are always as many.
NOINLINE static void work(unsigned long n) {
    static void *held[KEPT];
    for (int i = 0; i < 2; i++) {
        unsigned long place = (n * 2 + i) % KEPT;
        free(held[place]);
        held[place] = malloc(100 + (n * 37 + i * 11) % 400);
    }
    if (n == ROUNDS - 1)
        for (int i = 0; i < KEPT; i++) free(held[i]);
}

// Whether the argument names this fault.
static int has(const char *argument, const char *fault) {
    return !strcmp(argument, fault) || !strcmp(argument, "all");
}

int main(int argc, char **argv) {
    const char *fault = argc > 1 ? argv[1] : "none";
    for (unsigned long n = 0; n < ROUNDS; n++) {
        work(n);
        if (has(fault, "leak") && n % 10 == 0) remember(n);
        if (has(fault, "spike") && n == ROUNDS / 3) load_at_once();
        if (has(fault, "storm") && n % 2 == 0) copy_words();
    }
    fprintf(stderr, "%lu %lu\n", bytes, blocks);
    return 0;
}
