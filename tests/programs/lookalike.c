// A stripped program with a message of mimalloc's in it. PYTHON: it is an interpreter of Python as well, which calls
// malloc for its objects though it has that allocator; WITHOUT_LOCK: one without a global lock, which does not.
#include <stdio.h>
#include <stdlib.h>

const char *volatile message = "mimalloc: error: out of memory";
#ifdef PYTHON
const unsigned long Py_Version = 0x30e00f0;
#endif
#ifdef WITHOUT_LOCK
void _Py_MergeZeroLocalRefcount(void) {}
#endif

int main(void) {
    free(malloc(700));
    puts(message + 16);
    return 0;
}
