// Takes sizes in bytes, one after the other: allocates that much, touches it, frees it. The first argument says how:
// calloc, or vector. Says of each whether it was there.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

// What a vector of so many bytes writes, or what calloc gives; false where there is no memory.
static bool by_vector(size_t bytes) {
    try {
        std::vector<char> block(bytes, 1);
        return block[bytes - 1] == 1;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

static bool by_calloc(size_t bytes) {
    char *block = static_cast<char *>(calloc(bytes, 1));
    if (block == nullptr) return false;
    for (size_t at = 0; at < bytes; at += 4096) block[at] = 1;
    free(block);
    return true;
}

int main(int count, char **words) {
    int refused = 0;
    for (int i = 2; i < count; i++) {
        size_t bytes = strtoull(words[i], nullptr, 10);
        bool is_there = strcmp(words[1], "vector") == 0 ? by_vector(bytes) : by_calloc(bytes);
        dprintf(1, "%zu %s\n", bytes, is_there ? "granted" : "refused");
        refused += !is_there;
    }
    return refused > 0 ? 9 : 0;
}
