// lingering: waits for a signal that ends it.
#include <unistd.h>

int main(void) {
    for (;;) pause();
}
