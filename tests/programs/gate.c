// A library whose constructor says so by a byte through one pipe and waits for a byte of another: $GATE has both descriptors.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void) {
    int in, out;
    char byte = 1;
    if (sscanf(getenv("GATE") ? getenv("GATE") : "", "%d,%d", &in, &out) != 2) return;
    if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1) abort();
}
