// sizes [calloc] SIZE…: makes a vector of each size in turn (or a block by calloc), touches it, lets it go, and prints its bytes;
// a size that is refused ends it with 5 and the line "refused BYTES". A size is a number of bytes, or of KB, MB or GB (of 1024
// each), also a fraction: 0.9GB is 966367641.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

static void hold(std::size_t bytes) {
    std::vector<char> held(bytes, 1);
    std::printf("%zu\n", held.size());
}

static void hold_by_calloc(std::size_t bytes) {
    char *held = static_cast<char *>(std::calloc(bytes, 1));
    if (held == nullptr) throw std::bad_alloc();
    for (std::size_t at = 0; at < bytes; at += 4096) held[at] = 1;
    std::free(held);
    std::printf("%zu\n", bytes);
}

static std::size_t bytes_of(const char *text) {
    char *unit;
    long double number = std::strtold(text, &unit);
    for (const char *step = "KMG"; *step != 0 && *unit != 0 && *unit != 'B'; step++) {
        number *= 1024;
        if (*step == *unit) break;
    }
    return static_cast<std::size_t>(number);
}

int main(int argc, char **argv) {
    bool by_calloc = argc > 1 && std::strcmp(argv[1], "calloc") == 0;
    for (int i = 1 + by_calloc; i < argc; i++) {
        std::size_t bytes = bytes_of(argv[i]);
        try {
            by_calloc ? hold_by_calloc(bytes) : hold(bytes);
        } catch (const std::bad_alloc &) {
            std::printf("refused %zu\n", bytes);
            return 5;
        }
    }
    return 0;
}
