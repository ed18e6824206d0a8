// A library for quitting.c: who loads it ends in its constructor.
#include <pthread.h>
__attribute__((constructor)) static void load(void) { pthread_exit(0); }
