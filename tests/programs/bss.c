// Has 2 GiB of data that it does not touch, and says that it runs.
#include <stdio.h>
static volatile char most[2ul << 30];
int main(int argc, char **argv) {
    (void)argv;
    printf("main %d\n", most[argc * 1000]);
    return 0;
}
