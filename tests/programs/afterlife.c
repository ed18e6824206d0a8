// afterlife BYTES ROUNDS: what a process held is free for others from the moment on that its end can be seen.
//
// A child takes BYTES and is killed, or leaves, or becomes another program (this one, which takes as much at once);
// whoever waits for it then takes BYTES. Prints how often there was no memory.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int lacks(size_t bytes) {
    void *volatile block = malloc(bytes);
    int is_lacking = block == NULL;
    free(block);
    return is_lacking;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    size_t bytes = strtoull(words[1], NULL, 10);
    int rounds = atoi(words[2]), lacking = 0;
    if (rounds == 0) return lacks(bytes) ? 9 : 0;
    for (int round = 0; round < rounds; round++) {
        int pipes[2];
        if (pipe(pipes) != 0) return 3;
        pid_t child = fork();
        if (child < 0) return 3;
        if (child == 0) {
            void *volatile block = malloc(bytes);
            if (block == NULL) _exit(9);
            if (write(pipes[1], "x", 1) != 1) _exit(3);
            if (round % 3 == 0) for (;;) pause();
            if (round % 3 == 1) _exit(0);
            execl("/proc/self/exe", words[0], words[1], "0", (char *)NULL);
            _exit(3);
        }
        char byte;
        close(pipes[1]);
        // Where it lacked memory it has left without a word.
        if (read(pipes[0], &byte, 1) == 1 && round % 3 == 0) kill(child, SIGKILL);
        int status;
        if (waitpid(child, &status, 0) != child) return 5;
        lacking += WIFEXITED(status) && WEXITSTATUS(status) != 0;
        lacking += lacks(bytes);
        close(pipes[0]);
    }
    dprintf(1, "%d\n", lacking);
    return 0;
}
