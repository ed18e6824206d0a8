// barely BYTES: becomes itself anew by the raw system call, with no environment, takes BYTES, and holds them for a while.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count == 2) {
        char *again[] = {words[0], words[1], "again", NULL}, *nothing[] = {NULL};
        syscall(SYS_execve, "/proc/self/exe", again, nothing);
        return 3;
    }
    if (count != 3) return 2;
    size_t bytes = strtoull(words[1], NULL, 10);
    char *block = malloc(bytes);
    if (block == NULL) return 9;
    memset(block, 1, bytes);
    sleep(2);
    return block[bytes / 2] != 1;
}
