// entries [without-pvalloc]: every entry point of the C allocator, over many sizes and alignments; contents must survive each
// resize. An allocator that lacks pvalloc leaves it to libc, and then can't take back its blocks.
#include "truth.h"
static void fill(void *p, size_t n, int v) { memset(p, v, n); }
static void same(const void *p, size_t n, int v) { for (size_t i = 0; i < n; i++) T_CHECK(((const unsigned char *)p)[i] == (unsigned char)v); }

int main(int argc, char **argv) {
    (void)argv;
    int has_pvalloc = argc < 2;
    static const size_t sizes[] = {1, 7, 16, 17, 24, 25, 100, 1000, 1032, 1033, 4096, 5000, 65536, 131072, 140000, 1000000};
    t_quiet = 1;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        void *p = t_malloc(n), *q = NULL;
        fill(p, n, 1);
        p = t_realloc(p, n * 3); same(p, n, 1);
        p = t_realloc(p, n / 2 + 1); same(p, n / 2, 1);
        p = t_reallocarray(p, n, 2); same(p, n / 2, 1);
        T_CHECK(malloc_usable_size(p) >= 2 * n);
        t_free(p);
        p = t_calloc(n, 3); same(p, 3 * n, 0); t_free(p);
        for (size_t a = 8; a <= 65536; a *= 4) {
            p = t_memalign(a, n); T_CHECK((uintptr_t)p % a == 0); fill(p, n, 2);
            T_CHECK(t_posix_memalign(&q, a, n) == 0 && (uintptr_t)q % a == 0); fill(q, n, 3);
            p = t_realloc(p, n + 5000); same(p, n, 2);
            same(q, n, 3); t_free(q); t_free(p);
            if (n > 5000) continue;
            p = t_aligned_alloc(a, a * n); T_CHECK((uintptr_t)p % a == 0); t_free(p);
        }
        p = t_valloc(n); T_CHECK((uintptr_t)p % 4096 == 0); t_free(p);
        if (!has_pvalloc) continue;
        p = t_pvalloc(n); T_CHECK((uintptr_t)p % 4096 == 0 && malloc_usable_size(p) >= 4096); t_free(p);
    }
    t_valloc(10);
    if (has_pvalloc) t_pvalloc(10);
    return 0;
}
