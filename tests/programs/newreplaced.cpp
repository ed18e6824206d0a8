// A program with its own operator new and delete: it is malloc and free that it calls, and that must be on the tape.
#include "truth.h"
#include <string>
#include <vector>
void *operator new(size_t n) { void *p = t_malloc(n); if (!p) throw std::bad_alloc(); return p; }
void *operator new[](size_t n) { void *p = t_malloc(n + 8); if (!p) throw std::bad_alloc(); return p; }
void *operator new(size_t n, std::align_val_t a) { void *p = t_aligned_alloc(static_cast<size_t>(a), n); if (!p) throw std::bad_alloc(); return p; }
void operator delete(void *p) noexcept { t_free(p); }
void operator delete[](void *p) noexcept { t_free(p); }
void operator delete(void *p, size_t) noexcept { t_free(p); }
void operator delete[](void *p, size_t) noexcept { t_free(p); }
void operator delete(void *p, std::align_val_t) noexcept { t_free(p); }
void operator delete(void *p, size_t, std::align_val_t) noexcept { t_free(p); }

struct alignas(128) Wide { char c[256]; };
int main() {
    std::vector<std::string> v;
    for (int i = 0; i < 2000; i++) v.push_back(std::string(static_cast<size_t>(i % 90), 'x'));
    v.erase(v.begin(), v.begin() + 1000);
    // The library's array and nothrow forms call what the program has replaced, and so must whoever stands in between.
    auto *wide = new Wide[1];
    T_KEEP(wide);
    auto *quiet = new (std::nothrow) std::string(300, 'z');
    T_KEEP(quiet);
    auto *many = new (std::nothrow) Wide[2];
    T_KEEP(many);
    delete[] many;
    delete[] reinterpret_cast<char *>(new char[50]);
    auto *one = new Wide;
    T_KEEP(one);
    delete one;
    auto *kept = new std::string(500, 'y');
    T_KEEP(kept);
    return 0;
}
