// unseen BYTES: maps so much where nobody sees it, touches it, and stays for two seconds.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 2) return 2;
    size_t bytes = strtoull(words[1], NULL, 10);
    // A block in a mapping of its own, beside which the kernel puts the other.
    char *block = malloc(1 << 20);
    void *map = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == NULL || map == MAP_FAILED) return 9;
    memset(block, 1, 1 << 20);
    memset(map, 1, bytes);
    sleep(2);
    free(block);
    return 0;
}
