// C++ thread_local objects whose constructors and destructors allocate, in threads and in main; static objects too.
#include "truth.h"
struct Holder {
    void *p;
    explicit Holder(size_t n) : p(t_new(n)) {}
    ~Holder() { t_delete(p); t_free(t_malloc(9)); t_new(3); }
};
static Holder global(500);
static thread_local Holder mine(70), yours(80);
static pthread_key_t key;
static void key_gone(void *p) { t_delete(p); t_malloc(31); }

static void *work(void *arg) {
    static Holder local(600);
    pthread_setspecific(key, t_new(90));
    T_KEEP(mine.p);
    T_KEEP(yours.p);
    return arg;
}

int main() {
    T_CHECK(pthread_key_create(&key, key_gone) == 0);
    pthread_t threads[10];
    for (int round = 0; round < 5; round++) {
        for (auto &t : threads) t = t_start(work, nullptr, 0);
        for (auto &t : threads) t_join(t);
    }
    work(nullptr);
    return 0;
}
