// Linked statically: no preloaded library gets into it. It must run as ever and be named as not covered.
#include <stdlib.h>
#include <unistd.h>

int main(void) {
    void *volatile p = malloc(100);
    free(p);
    return write(1, "static\n", 7) == 7 ? 15 : 16;
}
