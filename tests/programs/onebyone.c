// onebyone THREADS BYTES: threads one after the other, each takes BYTES, touches them and gives them back.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *take(void *bytes) {
    char *block = malloc((size_t)bytes);
    if (block == NULL) return (void *)1;
    memset(block, 1, (size_t)bytes);
    free(block);
    return NULL;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    for (int i = atoi(words[1]); i > 0; i--) {
        pthread_t thread;
        void *failed;
        if (pthread_create(&thread, NULL, take, (void *)strtoull(words[2], NULL, 10)) != 0) return 3;
        pthread_join(thread, &failed);
        if (failed != NULL) return 9;
    }
    return 0;
}
