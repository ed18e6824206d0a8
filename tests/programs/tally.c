// tally FILE: says a line for each SIGTERM that it gets, until FILE is there.
#include <signal.h>
#include <time.h>
#include <unistd.h>

static void say(int signal) {
    (void)signal;
    if (write(1, "TERM\n", 5) != 5) _exit(1);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = say};
    if (argc < 2 || sigaction(SIGTERM, &action, 0) || write(1, "begun\n", 6) != 6) return 1;
    while (access(argv[1], F_OK)) nanosleep(&(struct timespec){0, 5000000}, 0);
    return 0;
}
