// Calls malloc, free and the operators through pointers. Built for a fixed place, the addresses of the functions are those of
// the executable's own jumps to them.
#include <cstdlib>
#include <new>
typedef void *(*Make)(size_t);
typedef void (*Drop)(void *);
volatile Make make[2] = {malloc, operator new};
volatile Drop drop[2] = {free, operator delete};

int main() {
    for (size_t i = 0; i < 1000; i++) {
        void *p = make[i % 2](i);
        __asm__ volatile("" ::"r"(p) : "memory");
        drop[i % 2](p);
    }
    return 0;
}
