// A library that plugged.c and deepbound.c load: it allocates, and its constructor and destructor do too.
#include <stdlib.h>
static void *early;
__attribute__((constructor)) static void load(void) { early = malloc(701); }
__attribute__((destructor)) static void unload(void) { free(early); }
__attribute__((visibility("default"))) void *plugin_make(size_t n) { void *p = malloc(n); __asm__ volatile("" ::"r"(p) : "memory"); return p; }
__attribute__((visibility("default"))) void plugin_drop(void *p) { free(p); __asm__ volatile("" ::: "memory"); }
