// Calls from .preinit_array, which runs before the constructor of any library.
#include "truth.h"
static void *early;
static void preinit(int argc, char **argv, char **envp) {
    (void)argc; (void)argv; (void)envp;
    early = t_malloc(501);
    early = t_realloc(early, 20000);
    t_free(t_calloc(5, 5));
}
__attribute__((section(".preinit_array"), used)) static void (*hook)(int, char **, char **) = preinit;

int main(void) {
    t_malloc(502);
    t_free(early);
    return 0;
}
