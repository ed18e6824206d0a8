// static [COMMAND ARGS…]: linked statically: no preloaded library gets into it. It must run as ever and be named as not covered.
//
// With a command it becomes that one, which can be covered.
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    void *volatile p = malloc(100);
    free(p);
    if (argc > 1) {
        execvp(argv[1], argv + 1);
        return 17;
    }
    return write(1, "static\n", 7) == 7 ? 15 : 16;
}
