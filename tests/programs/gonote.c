// An executable with the note that the Go linker writes, as a Go program has that calls C code.
#include <stdlib.h>
__asm__(".pushsection .note.go.buildid,\"a\",@note\n"
        ".long 4, 8, 4\n"
        ".ascii \"Go\\0\\0\"\n"
        ".ascii \"aaaa/bbb\"\n"
        ".popsection");

int main(void) {
    void *p = malloc(10);
    __asm__ volatile("" ::"r"(p) : "memory");
    free(p);
    return 0;
}
