// named LIBRARY: blocks of sizes that tell which function asked for them: in C and C++, of this file and of a library.
#include <cstdlib>
#include <dlfcn.h>

static void keep(void *p) { __asm__ volatile("" ::"r"(p) : "memory"); }

extern "C" {
__attribute__((noinline)) static void only_here(std::size_t n) { keep(std::malloc(n)); }
}

namespace shop {
template <int N> struct Shelf {
    __attribute__((noinline)) static void stock(std::size_t n) { keep(std::malloc(n)); }
};
namespace {
__attribute__((noinline)) void unnamed(std::size_t n) { keep(std::malloc(n)); }
}
}

int main(int argc, char **argv) {
    only_here(10001);
    shop::Shelf<3>::stock(10003);
    shop::unnamed(10005);
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : nullptr;
    if (!library)
        return 1;
    auto make = reinterpret_cast<void *(*)(std::size_t)>(dlsym(library, "plugin_make"));
    if (!make)
        return 1;
    keep(make(10007));
    return 0;
}
