// quitting LIBRARY PAIRS 0|1: with 1 a thread loads LIBRARY and ends in its constructor; then PAIRS pairs of calls are made.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *load(void *file) {
    dlopen(file, RTLD_NOW);
    return NULL;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    pthread_t thread;
    if (atoi(words[3]) && (pthread_create(&thread, NULL, load, words[1]) || pthread_join(thread, NULL))) return 3;
    for (long i = atol(words[2]); i > 0; i--) {
        void *volatile block = malloc(i % 200);
        free(block);
    }
    // What `exit` does would wait for the loader's lock, which that thread has.
    _exit(0);
}
