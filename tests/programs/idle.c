// 500 threads that made a few calls each and then sit there, while main goes on; none of them may hold up another.
#include "truth.h"
enum { THREADS = 500 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ready, go;

static void *work(void *arg) {
    void *p = t_malloc(10 + (uintptr_t)arg);
    pthread_mutex_lock(&mutex);
    ready++;
    pthread_cond_broadcast(&changed);
    while (!go) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    p = t_realloc(p, 999);
    t_free(p);
    return NULL;
}

int main(void) {
    static pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) threads[i] = t_start(work, (void *)i, 65536);
    pthread_mutex_lock(&mutex);
    while (ready < THREADS) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 100000; i++) t_free(t_malloc((size_t)i % 3000));
    pthread_mutex_lock(&mutex);
    go = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < THREADS; i++) t_join(threads[i]);
    return 0;
}
