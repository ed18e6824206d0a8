// A library that indulgent.c loads: it takes memory for others, and gives it back.
#include <stdlib.h>
#define PUBLIC __attribute__((visibility("default")))
PUBLIC void *greedy_take(size_t size) { void *block = malloc(size); __asm__ volatile("" ::"r"(block) : "memory"); return block; }
PUBLIC void *greedy_resize(void *old, size_t size) { void *block = realloc(old, size); __asm__ volatile("" ::"r"(block) : "memory"); return block; }
PUBLIC void greedy_give(void *block) { free(block); __asm__ volatile("" ::: "memory"); }
