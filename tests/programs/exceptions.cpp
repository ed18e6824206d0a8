// Exceptions thrown through frames that own blocks, bad_alloc among them, rethrown and carried to another thread.
#include "truth.h"
#include <exception>
struct Guard {
    void *p;
    explicit Guard(size_t n) : p(t_new(n)) {}
    ~Guard() { t_delete(p); }
};
static int deep(int n) {
    Guard g(static_cast<size_t>(n) + 1);
    if (n == 0) throw 42;
    int r = deep(n - 1);
    T_KEEP(g.p);
    return r + 1;
}
static std::exception_ptr carried;
static void *work(void *arg) {
    for (int i = 0; i < 300; i++) {
        try { deep(20); } catch (int x) { t_catch(); T_CHECK(x == 42); t_free(t_malloc(5)); }
    }
    try { std::rethrow_exception(carried); } catch (const std::bad_alloc &) { t_malloc(6); }
    return arg;
}

int main() {
    for (int i = 0; i < 100; i++) {
        try {
            try { deep(10); } catch (...) { Guard g(99); throw; }
        } catch (int) { t_catch(); t_free(t_malloc(1)); }
    }
    volatile size_t huge = SIZE_MAX / 2;
    try { t_new(huge); T_CHECK(false); } catch (const std::bad_alloc &) { carried = std::current_exception(); }
    pthread_t threads[4];
    for (auto &t : threads) t = t_start(work, nullptr, 0);
    for (auto &t : threads) t_join(t);
    return 0;
}
