// What bench/sql.py asks about: a shop with a table that stays, orders that one thread makes and another ships, words
// that live for a moment, a catalogue that is loaded once, and notes that nobody ever throws away. It runs for three
// seconds or so, and then says what it knows: the bytes and blocks of the notes, and those of the shipped orders.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <queue>
#include <thread>

#define NOINLINE __attribute__((noinline))

static const int rounds = 60, orders_of_a_round = 500, sizes_of_an_order = 900;

struct Order { size_t size; void *goods; };

static std::queue<Order> waiting;
static std::mutex lock;
static std::condition_variable changed;
static unsigned long notes, note_bytes, shipped, shipped_bytes;
static void *volatile sink;

NOINLINE void remember_order(size_t) {
    static void *last;
    void **note = static_cast<void **>(malloc(120));
    *note = last;
    last = note;
    notes += 1;
    note_bytes += 120;
}

NOINLINE void parse_words() {
    for (int i = 0; i < 4; i++) {
        void *word = malloc(24 + static_cast<size_t>(i) * 8);
        sink = word;
        free(word);
    }
}

NOINLINE void load_catalogue() {
    void *pages[32];
    for (void *&page : pages) sink = page = malloc(1 << 20);
    for (void *page : pages) free(page);
}

NOINLINE void make_order(size_t size) {
    void *goods = malloc(size);
    std::lock_guard<std::mutex> held(lock);
    waiting.push({size, goods});
    changed.notify_one();
}

NOINLINE void ship_order(const Order &order) {
    shipped += 1;
    shipped_bytes += order.size;
    free(order.goods);
}

NOINLINE void ship_all() {
    for (;;) {
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [] { return !waiting.empty(); });
        Order order = waiting.front();
        waiting.pop();
        held.unlock();
        if (!order.goods) return;
        ship_order(order);
    }
}

NOINLINE void **fill_table() {
    void **table = static_cast<void **>(malloc(1000 * sizeof(void *)));
    for (int i = 0; i < 1000; i++) table[i] = malloc(2000);
    return table;
}

int main() {
    void **table = fill_table();
    std::thread shipping(ship_all);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < orders_of_a_round; i++) {
            make_order(static_cast<size_t>(100 + (round * 31 + i * 7) % sizes_of_an_order));
            parse_words();
            if (i % 5 == 0) remember_order(static_cast<size_t>(i));
        }
        if (round == rounds / 3) load_catalogue();
        std::this_thread::sleep_for(std::chrono::milliseconds(45));
    }
    { std::lock_guard<std::mutex> held(lock); waiting.push({0, nullptr}); changed.notify_one(); }
    shipping.join();
    for (int i = 0; i < 1000; i++) free(table[i]);
    free(table);
    printf("{\"notes\": %lu, \"note_bytes\": %lu, \"shipped\": %lu, \"shipped_bytes\": %lu}\n", notes, note_bytes, shipped, shipped_bytes);
    return 0;
}
