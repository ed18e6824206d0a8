// twice: frees a block twice, which libc notices and ends the program for.
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *p = malloc(40);
    memset(p, 1, 40);
    free(p);
    free(p);
    return 0;
}
