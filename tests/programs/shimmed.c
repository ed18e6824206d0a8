// Calls the allocator in the plainest ways, for libraries that stand before or behind heaptape's: 900 events.
#include <stdlib.h>
#include <string.h>

int main(void) {
    for (size_t i = 0; i < 300; i++) {
        char *p = malloc(100 + i);
        memset(p, 1, 100 + i);
        p = realloc(p, 1000 + i);
        if (p[99] != 1) return 9;
        free(p);
    }
    return 0;
}
