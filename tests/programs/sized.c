// free_sized, free_aligned_sized (C23) and cfree (removed from the headers), wherever somebody defines them.
#include "truth.h"

int main(void) {
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    void (*cfree)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    for (size_t i = 0; i < 200; i++) {
        void *p = t_malloc(i * 7);
        if (free_sized) { t_gives(T_FREE, p); free_sized(p, i * 7); T_KEEP(p); }
        else t_free(p);
        p = t_aligned_alloc(64, i * 64);
        if (free_aligned_sized) { t_gives(T_FREE, p); free_aligned_sized(p, 64, i * 64); T_KEEP(p); }
        else t_free(p);
        p = t_calloc(i, 9);
        if (cfree) { t_gives(T_FREE, p); cfree(p); T_KEEP(p); }
        else t_free(p);
    }
    if (free_sized) { t_gives(T_FREE, NULL); free_sized(NULL, 0); }
    if (free_aligned_sized) { t_gives(T_FREE, NULL); free_aligned_sized(NULL, 8, 0); }
    if (cfree) { t_gives(T_FREE, NULL); cfree(NULL); }
    return 0;
}
