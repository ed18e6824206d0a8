// An executable that defines malloc and its family itself, over memory of its own, and nothing of operator new or reallocarray:
// those of the libraries must go on calling its functions. Ends with 99 when a foreign block comes to it, else with 7.
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <unistd.h>
static char pool[1 << 20];
static size_t used;
static bool is_ours(void *p) { return static_cast<char *>(p) >= pool && static_cast<char *>(p) < pool + sizeof pool; }
static void check(bool so) { if (!so) _exit(99); }

extern "C" {
void *malloc(size_t n) {
    char *p = pool + used + 16;
    used += (n + 31) / 16 * 16;
    check(used < sizeof pool);
    memcpy(p - 16, &n, sizeof n);
    return p;
}
void free(void *p) { check(!p || is_ours(p)); }
void *calloc(size_t n, size_t size) { return memset(malloc(n * size), 0, n * size); }
void *realloc(void *old, size_t n) {
    check(!old || is_ours(old));
    void *p = malloc(n);
    size_t had = 0;
    if (old) memcpy(&had, static_cast<char *>(old) - 16, sizeof had);
    return memcpy(p, old ? old : p, had < n ? had : n);
}
void *aligned_alloc(size_t align, size_t n) {
    used += (align - (reinterpret_cast<uintptr_t>(pool) + used + 16) % align) % align;
    return malloc(n);
}
void *reallocarray(void *, size_t, size_t);
}

int main() {
    int *numbers = new int[10];
    check(is_ours(numbers));
    free(numbers);
    auto *quiet = new (std::nothrow) std::string(300, 'x');
    check(is_ours(quiet) && is_ours(quiet->data()));
    delete quiet;
    void *p = reallocarray(malloc(10), 10, 10);
    check(is_ours(p));
    free(p);
    char *text = strdup("libc asks it, too");
    check(is_ours(text));
    free(text);
    void *wide = ::operator new(100, std::align_val_t(64));
    check(is_ours(wide) && reinterpret_cast<uintptr_t>(wide) % 64 == 0);
    ::operator delete(wide, std::align_val_t(64));
    return 7;
}
