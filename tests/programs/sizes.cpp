// sizes BYTES…: makes a vector of each size in turn, touches it, lets it go, and prints its size; a size that is refused ends it
// with 5 and the line "refused BYTES".
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

static void hold(std::size_t bytes) {
    std::vector<char> held(bytes, 1);
    std::printf("%zu\n", held.size());
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        std::size_t bytes = std::strtoull(argv[i], nullptr, 10);
        try {
            hold(bytes);
        } catch (const std::bad_alloc &) {
            std::printf("refused %zu\n", bytes);
            return 5;
        }
    }
    return 0;
}
