// The corners: size 0, realloc to 0, null pointers, sizes that cannot be, overflows, bad alignments; errno as it should be.
#include "truth.h"
#include <stdint.h>

int main(void) {
    volatile size_t huge = SIZE_MAX / 2 + 1, half = SIZE_MAX / 2;
    void *p, *q;
    t_quiet = 1;
    for (int round = 0; round < 20; round++) {
        errno = 77;
        p = t_malloc(0); T_CHECK(p); t_free(p);
        p = t_calloc(0, 5); T_CHECK(p); t_free(p);
        p = t_calloc(5, 0); T_CHECK(p); t_free(p);
        p = t_realloc(NULL, 0); T_CHECK(p); t_free(p);
        p = t_realloc(NULL, 30); T_CHECK(p);
        p = t_realloc(p, 31); T_CHECK(p);
        q = t_realloc(p, 0); T_CHECK(!q);
        p = t_malloc(40);
        q = t_reallocarray(p, 0, 5); T_CHECK(!q);
        p = t_memalign(64, 0); T_CHECK(p); t_free(p);
        T_CHECK(t_posix_memalign(&p, 64, 0) == 0); t_free(p);
        t_free(NULL);
        T_CHECK(errno == 77);

        errno = 0; T_CHECK(!t_malloc(huge) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_calloc(1, huge) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_calloc(half, 3) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_calloc(huge, huge) && errno == ENOMEM);
        p = t_malloc(50);
        memset(p, 'a', 50);
        errno = 0; T_CHECK(!t_realloc(p, huge) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_reallocarray(p, half, 3) && errno == ENOMEM);
        T_CHECK(((char *)p)[49] == 'a');
        t_free(p);
        errno = 0; T_CHECK(!t_realloc(NULL, huge) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_reallocarray(NULL, huge, 2) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_memalign(64, huge) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_aligned_alloc(64, huge) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_valloc(huge) && errno == ENOMEM);
        errno = 0; T_CHECK(!t_pvalloc(huge) && errno == ENOMEM);
        p = (void *)1234;
        T_CHECK(t_posix_memalign(&p, 64, huge) == ENOMEM && p == (void *)1234);
        T_CHECK(t_posix_memalign(&p, 24, 10) == EINVAL && p == (void *)1234);
        T_CHECK(t_posix_memalign(&p, 0, 10) == EINVAL && p == (void *)1234);
        errno = 66;
        p = t_malloc(300000); T_CHECK(p); t_free(p);
        T_CHECK(errno == 66);
    }
    T_CHECK(malloc_usable_size(NULL) == 0);
    t_malloc(61);
    return 0;
}
