// Ground truth: what a program asked of the allocator, counted by the program itself.
//
// A program calls t_malloc(n) where it would call malloc(n), and so on. Each call is counted in static
// memory, by thread, and its block is kept in a static table; nothing here allocates, and no stdio is used,
// because stdio allocates. At the end (or when truth_write is called) one JSON line per process is
// appended to the file that $TRUTH names:
//
//   program, pid, threads   threads that made a counted call
//   calls                   by kind, failed calls included; free_null counts null pointers given to free or delete
//   bytes                   by kind: requested bytes of the calls that succeeded
//   failed                  calls that returned no block
//   usable                  sum of malloc_usable_size over all blocks handed out
//   mix                     sum over calls of a hash of (kind, size, address, alignment, old address)
//   order                   sum over threads of a hash of the thread's calls in order
//   inherited, live         blocks at the start (of a fork child) and at the end; null when not knowable
//   peak                    largest live bytes at one instant; only with a single thread, else null
//   caught                  exceptions that the program was the last to hold; libstdc++ frees such an object by jumps, so that
//                           the free seems to come from the program, and the harness must set as many frees aside
//   quiet                   whether libc itself makes no allocator call in this process
//
// The counting is exact under threads (a block leaves the table before its free, enters it after its allocation)
// and across fork. In a vfork child the calls count for the parent, whose memory it is.
#ifndef TRUTH_H
#define TRUTH_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum t_call { T_MALLOC = 1, T_CALLOC, T_REALLOC, T_REALLOCARRAY, T_FREE, T_MEMALIGN, T_POSIX_MEMALIGN,
              T_ALIGNED_ALLOC, T_VALLOC, T_PVALLOC, T_NEW, T_DELETE, T_CALLS };
static const char *const t_names[T_CALLS] = {"free_null", "malloc", "calloc", "realloc", "reallocarray", "free", "memalign",
                                             "posix_memalign", "aligned_alloc", "valloc", "pvalloc", "new", "delete"};

#define T_THREADS 4096
#define T_SHARDS 64
#define T_SLOTS 4096

struct t_thread { uint64_t calls[T_CALLS], bytes[T_CALLS], failed, usable, mix, chain; };
struct t_block { uint64_t address, size; };
struct t_shard { int lock; uint32_t used; struct t_block blocks[T_SLOTS]; };
struct t_live { uint64_t bytes, blocks, mix; };

static struct t_thread t_threads[T_THREADS];
static uint32_t t_thread_count;
static __thread struct t_thread *t_self;
static struct t_shard t_shards[T_SHARDS];
static uint64_t t_live_bytes, t_peak;
static struct t_live t_inherited;
static uint64_t t_caught;
static int t_live_known = 1, t_quiet, t_written;
static const char *t_path;
static int t_fd = -1; // where the line goes when it cannot be opened by name any more
static uint64_t t_pid; // what the line tells as the process's number, where that is not the one it knows

// ---- the arithmetic, which the test harness repeats ----

static inline uint64_t t_step(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ h >> 32;
}
static inline uint64_t t_hash_call(int call, uint64_t size, uint64_t address, uint64_t align, uint64_t old) {
    return t_step(t_step(t_step(t_step(t_step(1, (uint64_t)call), size), address), align), old);
}
static inline uint64_t t_hash_block(uint64_t address, uint64_t size) { return t_step(t_step(2, address), size); }

// ---- failure: a program that sees something wrong says where and leaves with 99 ----

static inline void t_say(const char *s) { ssize_t w = write(2, s, strlen(s)); (void)w; }
#define T_STR2(x) #x
#define T_STR(x) T_STR2(x)
#define T_CHECK(c) do { if (!(c)) { t_say(__FILE__ ":" T_STR(__LINE__) ": not so: " #c "\n"); _exit(99); } } while (0)

// ---- counters and table ----

static inline struct t_thread *t_me(void) {
    if (!t_self) {
        uint32_t i = __atomic_fetch_add(&t_thread_count, 1, __ATOMIC_RELAXED);
        T_CHECK(i < T_THREADS);
        t_self = &t_threads[i];
    }
    return t_self;
}
static inline struct t_shard *t_lock(uint64_t address) {
    struct t_shard *s = &t_shards[t_step(3, address) % T_SHARDS];
    while (__atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
    return s;
}
static inline void t_unlock(struct t_shard *s) { __atomic_store_n(&s->lock, 0, __ATOMIC_RELEASE); }
static inline uint32_t t_home(uint64_t address) { return (uint32_t)(t_step(4, address) % T_SLOTS); }

static void t_insert(uint64_t address, uint64_t size) {
    struct t_shard *s = t_lock(address);
    T_CHECK(++s->used < T_SLOTS);
    uint32_t i = t_home(address);
    while (s->blocks[i].address) {
        T_CHECK(s->blocks[i].address != address);
        i = (i + 1) % T_SLOTS;
    }
    s->blocks[i].address = address;
    s->blocks[i].size = size;
    t_unlock(s);
    uint64_t live = __atomic_add_fetch(&t_live_bytes, size, __ATOMIC_RELAXED);
    if (live > t_peak) t_peak = live;
}
static uint64_t t_remove(uint64_t address) {
    struct t_shard *s = t_lock(address);
    uint32_t i = t_home(address);
    while (s->blocks[i].address != address) {
        T_CHECK(s->blocks[i].address);
        i = (i + 1) % T_SLOTS;
    }
    uint64_t size = s->blocks[i].size;
    for (uint32_t j = i;;) {
        j = (j + 1) % T_SLOTS;
        if (!s->blocks[j].address) break;
        uint32_t home = t_home(s->blocks[j].address);
        if ((j - home) % T_SLOTS >= (j - i) % T_SLOTS) { s->blocks[i] = s->blocks[j]; i = j; }
    }
    s->blocks[i].address = 0;
    s->used--;
    t_unlock(s);
    __atomic_sub_fetch(&t_live_bytes, size, __ATOMIC_RELAXED);
    return size;
}
static inline void t_count(int call, uint64_t size, uint64_t address, uint64_t align, uint64_t old) {
    struct t_thread *t = t_me();
    uint64_t h = t_hash_call(call, size, address, align, old);
    t->calls[call]++;
    t->mix += h;
    t->chain = t_step(t->chain, h);
}
static inline void t_got(int call, void *p, uint64_t size, uint64_t align) {
    int e = errno;
    t_count(call, size, (uint64_t)p, align, 0);
    if (!p) {
        t_me()->failed++;
    } else {
        t_me()->bytes[call] += size;
        t_me()->usable += malloc_usable_size(p);
        t_insert((uint64_t)p, size);
    }
    errno = e;
}
// Before a release: true when there is a block to release.
static inline int t_gives(int call, void *p) {
    if (!p) { t_me()->calls[0]++; return 0; }
    int e = errno;
    t_remove((uint64_t)p);
    t_count(call, 0, (uint64_t)p, 0, 0);
    errno = e;
    return 1;
}
static inline uint64_t t_product(uint64_t n, uint64_t size) {
    uint64_t product;
    return __builtin_mul_overflow(n, size, &product) ? UINT64_MAX : product;
}
// Keeps the compiler from removing the call or from making it a jump.
#define T_KEEP(p) __asm__ volatile("" ::"r"(p) : "memory")

// ---- the calls ----

static inline void *t_malloc(size_t n) { void *p = malloc(n); T_KEEP(p); t_got(T_MALLOC, p, n, 0); return p; }
static inline void *t_calloc(size_t n, size_t size) {
    void *p = calloc(n, size);
    T_KEEP(p);
    t_got(T_CALLOC, p, t_product(n, size), 0);
    return p;
}
static inline void t_free(void *p) { t_gives(T_FREE, p); free(p); T_KEEP(p); }
static inline void *t_resized(int call, void *old, uint64_t had, void *p, uint64_t size) {
    int e = errno;
    t_count(call, size, (uint64_t)p, 0, (uint64_t)old);
    if (p) {
        t_me()->bytes[call] += size;
        t_me()->usable += malloc_usable_size(p);
        t_insert((uint64_t)p, size);
    } else if (size || !old) {
        t_me()->failed++;
        if (old) t_insert((uint64_t)old, had);
    }
    errno = e;
    return p;
}
static inline void *t_realloc(void *old, size_t n) {
    int e = errno;
    uint64_t had = old ? t_remove((uint64_t)old) : 0;
    errno = e;
    void *p = realloc(old, n);
    T_KEEP(p);
    return t_resized(T_REALLOC, old, had, p, n);
}
static inline void *t_reallocarray(void *old, size_t n, size_t size) {
    int e = errno;
    uint64_t had = old ? t_remove((uint64_t)old) : 0;
    errno = e;
    void *p = reallocarray(old, n, size);
    T_KEEP(p);
    return t_resized(T_REALLOCARRAY, old, had, p, t_product(n, size));
}
static inline void *t_memalign(size_t a, size_t n) { void *p = memalign(a, n); T_KEEP(p); t_got(T_MEMALIGN, p, n, a); return p; }
static inline void *t_aligned_alloc(size_t a, size_t n) {
    void *p = aligned_alloc(a, n);
    T_KEEP(p);
    t_got(T_ALIGNED_ALLOC, p, n, a);
    return p;
}
static inline int t_posix_memalign(void **out, size_t a, size_t n) {
    void *p = NULL;
    int r = posix_memalign(&p, a, n);
    T_KEEP(p);
    t_got(T_POSIX_MEMALIGN, r ? NULL : p, n, a);
    if (!r) *out = p;
    return r;
}
// The alignment of these two is the page size by definition; the hash leaves it out.
static inline void *t_valloc(size_t n) { void *p = valloc(n); T_KEEP(p); t_got(T_VALLOC, p, n, 0); return p; }
static inline void *t_pvalloc(size_t n) { void *p = pvalloc(n); T_KEEP(p); t_got(T_PVALLOC, p, n, 0); return p; }

// ---- fork ----

static inline void t_look(struct t_live *live) {
    memset(live, 0, sizeof *live);
    for (int s = 0; s < T_SHARDS; s++)
        for (int i = 0; i < T_SLOTS; i++) {
            struct t_block *b = &t_shards[s].blocks[i];
            if (!b->address) continue;
            live->bytes += b->size;
            live->blocks++;
            live->mix += t_hash_block(b->address, b->size);
        }
}
static inline void t_start_over(void) {
    memset(t_threads, 0, sizeof t_threads);
    t_thread_count = 0;
    t_caught = 0;
    t_self = NULL;
    t_written = 0;
    t_live_known = 1;
    t_look(&t_inherited);
    t_live_bytes = t_peak = t_inherited.bytes;
}
// fork while no other thread is inside a t_ function.
static inline pid_t t_fork(void) {
    pid_t pid = fork();
    if (pid == 0) t_start_over();
    return pid;
}
// fork while other threads go on: the child does not know what it inherits, and starts with an empty table.
static inline pid_t t_fork_racing(void) {
    pid_t pid = fork();
    if (pid == 0) {
        memset(t_shards, 0, sizeof t_shards);
        t_start_over();
        t_live_known = 0;
    }
    return pid;
}

// ---- the line ----

static char t_line[8192];
static size_t t_length;
static inline void t_put(const char *s) {
    size_t n = strlen(s);
    T_CHECK(t_length + n < sizeof t_line);
    memcpy(t_line + t_length, s, n);
    t_length += n;
}
static inline void t_put_number(uint64_t v) {
    char digits[24];
    int i = 23;
    digits[i] = 0;
    do digits[--i] = (char)('0' + v % 10); while (v /= 10);
    t_put(digits + i);
}
static inline void t_put_field(const char *name, uint64_t v) { t_put(",\""); t_put(name); t_put("\":"); t_put_number(v); }
static inline void t_put_live(const char *name, const struct t_live *live) {
    t_put(",\""); t_put(name); t_put("\":");
    if (!t_live_known) { t_put("null"); return; }
    t_put("{\"bytes\":"); t_put_number(live->bytes);
    t_put_field("blocks", live->blocks);
    t_put_field("mix", live->mix);
    t_put("}");
}
static inline int t_open(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    T_CHECK(fd >= 0);
    return fd;
}
static inline void truth_write(void) {
    if (t_written) return;
    t_written = 1;
    const char *path = t_path ? t_path : getenv("TRUTH");
    if (!path && t_fd < 0) return;
    struct t_thread all;
    struct t_live live;
    uint64_t order = 0;
    memset(&all, 0, sizeof all);
    for (uint32_t i = 0; i < t_thread_count; i++) {
        struct t_thread *t = &t_threads[i];
        for (int c = 0; c < T_CALLS; c++) { all.calls[c] += t->calls[c]; all.bytes[c] += t->bytes[c]; }
        all.failed += t->failed;
        all.usable += t->usable;
        all.mix += t->mix;
        if (t->chain) order += t_step(5, t->chain);
    }
    t_look(&live);
    t_length = 0;
    t_put("{\"program\":\""); t_put(program_invocation_short_name); t_put("\"");
    t_put_field("pid", t_pid ? t_pid : (uint64_t)getpid());
    t_put_field("threads", t_thread_count);
    t_put(",\"calls\":{");
    for (int c = 0; c < T_CALLS; c++) { t_put(c ? ",\"" : "\""); t_put(t_names[c]); t_put("\":"); t_put_number(all.calls[c]); }
    t_put("},\"bytes\":{");
    for (int c = 1; c < T_CALLS; c++) { t_put(c > 1 ? ",\"" : "\""); t_put(t_names[c]); t_put("\":"); t_put_number(all.bytes[c]); }
    t_put("}");
    t_put_field("failed", all.failed);
    t_put_field("usable", all.usable);
    t_put_field("caught", t_caught);
    t_put_field("mix", all.mix);
    t_put_field("order", order);
    t_put_live("inherited", &t_inherited);
    t_put_live("live", &live);
    if (t_thread_count <= 1 && t_live_known) t_put_field("peak", t_peak);
    else t_put(",\"peak\":null");
    t_put(t_quiet ? ",\"quiet\":true}\n" : ",\"quiet\":false}\n");
    int fd = t_fd >= 0 ? t_fd : t_open(path);
    T_CHECK(write(fd, t_line, t_length) == (ssize_t)t_length);
    if (fd != t_fd) close(fd);
}
// Runs after all atexit handlers and static destructors of the program.
__attribute__((destructor(101))) static void t_at_end(void) { truth_write(); }

// ---- small things that the programs need ----

static inline uint64_t t_random(uint64_t *s) {
    uint64_t x = *s;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *s = x;
}
static inline void t_wait(pid_t pid, int expected) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) T_CHECK(errno == EINTR);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected);
}
static inline pthread_t t_start(void *(*run)(void *), void *arg, size_t stack) {
    pthread_t thread;
    pthread_attr_t attr;
    T_CHECK(pthread_attr_init(&attr) == 0);
    if (stack) T_CHECK(pthread_attr_setstacksize(&attr, stack) == 0);
    T_CHECK(pthread_create(&thread, &attr, run, arg) == 0);
    pthread_attr_destroy(&attr);
    return thread;
}
static inline void t_join(pthread_t thread) { T_CHECK(pthread_join(thread, NULL) == 0); }

#ifdef __cplusplus
#include <new>
static inline void t_catch(void) { __atomic_fetch_add(&t_caught, 1, __ATOMIC_RELAXED); }
// operator new and delete in all their forms; each is counted once, whatever it calls inside.
static inline void *t_new(size_t n) {
    void *p = nullptr;
    try {
        p = ::operator new(n);
    } catch (...) {
        t_got(T_NEW, nullptr, n, 0);
        throw;
    }
    T_KEEP(p);
    t_got(T_NEW, p, n, 0);
    return p;
}
static inline void *t_new_array(size_t n) { void *p = ::operator new[](n); T_KEEP(p); t_got(T_NEW, p, n, 0); return p; }
static inline void *t_new_nothrow(size_t n) { void *p = ::operator new(n, std::nothrow); T_KEEP(p); t_got(T_NEW, p, n, 0); return p; }
static inline void *t_new_array_nothrow(size_t n) { void *p = ::operator new[](n, std::nothrow); T_KEEP(p); t_got(T_NEW, p, n, 0); return p; }
static inline void t_delete(void *p) { t_gives(T_DELETE, p); ::operator delete(p); T_KEEP(p); }
static inline void t_delete_array(void *p) { t_gives(T_DELETE, p); ::operator delete[](p); T_KEEP(p); }
#endif
#endif
