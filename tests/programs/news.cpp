// operator new and delete in every form: plain, array, nothrow, aligned, sized, with a new-handler, of null, and failing.
#include "truth.h"
#include <initializer_list>
#include <sys/resource.h>
using std::align_val_t;
using std::nothrow;
static void *got(void *p, size_t n, size_t align) { T_KEEP(p); t_got(T_NEW, p, n, align); return p; }
static int handled;
static void handler() { if (++handled == 3) std::set_new_handler(nullptr); }
static rlimit before;
static void make_room() { setrlimit(RLIMIT_AS, &before); }
#define RELEASE(call) do { t_gives(T_DELETE, p); call; T_KEEP(p); } while (0)

int main() {
    for (size_t n : {size_t{0}, size_t{1}, size_t{24}, size_t{1000}, size_t{100000}, size_t{1000000}}) {
        void *p = t_new(n); t_delete(p);
        p = t_new_array(n); t_delete_array(p);
        p = t_new_nothrow(n); RELEASE(::operator delete(p, nothrow));
        p = t_new_array_nothrow(n); RELEASE(::operator delete[](p, nothrow));
        p = t_new(n); RELEASE(::operator delete(p, n));
        p = t_new_array(n); RELEASE(::operator delete[](p, n));
        for (size_t a : {size_t{8}, size_t{16}, size_t{64}, size_t{4096}}) {
            p = got(::operator new(n, align_val_t(a)), n, a); T_CHECK(reinterpret_cast<uintptr_t>(p) % a == 0);
            RELEASE(::operator delete(p, align_val_t(a)));
            p = got(::operator new[](n, align_val_t(a)), n, a); RELEASE(::operator delete[](p, align_val_t(a)));
            p = got(::operator new(n, align_val_t(a), nothrow), n, a); RELEASE(::operator delete(p, align_val_t(a), nothrow));
            p = got(::operator new[](n, align_val_t(a), nothrow), n, a); RELEASE(::operator delete[](p, align_val_t(a), nothrow));
            p = got(::operator new(n, align_val_t(a)), n, a); RELEASE(::operator delete(p, n, align_val_t(a)));
            p = got(::operator new[](n, align_val_t(a)), n, a); RELEASE(::operator delete[](p, n, align_val_t(a)));
        }
    }
    for (int i = 0; i < 5; i++) { t_delete(nullptr); t_delete_array(nullptr); }
    void *p = nullptr;
    RELEASE(::operator delete(p, size_t{8}));
    RELEASE(::operator delete(p, align_val_t(64)));
    volatile size_t huge = SIZE_MAX / 2;
    T_CHECK(t_new_nothrow(huge) == nullptr);
    T_CHECK(t_new_array_nothrow(huge) == nullptr);
    T_CHECK(got(::operator new(huge, align_val_t(64), nothrow), huge, 64) == nullptr);
    try { t_new(huge); T_CHECK(false); } catch (const std::bad_alloc &) { t_catch(); }
    try { void *q = ::operator new(huge, align_val_t(64)); T_KEEP(q); T_CHECK(false); } catch (const std::bad_alloc &) { t_catch(); got(nullptr, huge, 64); }
    // The handler is called until it gives up: one call of the program, one failed event.
    std::set_new_handler(handler);
    try { t_new(huge); T_CHECK(false); } catch (const std::bad_alloc &) { t_catch(); }
    T_CHECK(handled == 3);
    // The handler makes room: the call fails inside at first and succeeds in the end.
    T_CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    rlimit tight = before;
    tight.rlim_cur = 512u << 20;
    T_CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
    std::set_new_handler(make_room);
    p = t_new(size_t{600} << 20);
    T_CHECK(p);
    t_delete(p);
    t_new(12);
    return 0;
}
