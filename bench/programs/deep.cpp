// What bench/stacks.py calls "C++, 30 deep": a tree of visitors that allocate on their way, at some thirty frames
// below main, some a few frames further in than others. Arguments: threads, rounds. Prints the allocations of a thread.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline))

struct Visitor {
    virtual ~Visitor() = default;
    virtual unsigned long visit(int depth, unsigned way) = 0;
};

static unsigned long allocate(unsigned way) {
    std::string word(24 + way % 64, 'x');
    std::vector<int> numbers(8 + way % 32);
    return 2 + static_cast<unsigned long>(word.size() + numbers.size() == 0);
}

// One kind of visitor a number, so that calls differ in their addresses as those of a compiler's passes do.
template <int KIND> struct Pass : Visitor {
    Visitor *others[4] = {};

    NOINLINE unsigned long visit(int depth, unsigned way) override {
        unsigned long made = 0;
        if (depth == 0) return allocate(way) + allocate(way + 1);
        if (depth % 7 == 0) made += others[(way + 1) % 4]->visit(0, way * 5 + KIND);
        made += others[way % 4]->visit(depth - 1, way * 3 + KIND);
        if (depth == 1 || depth == 3) made += others[(way + 2) % 4]->visit(depth - 1, way + KIND);
        return made;
    }
};

static unsigned long visit_often(unsigned rounds) {
    auto first = std::make_unique<Pass<0>>();
    auto second = std::make_unique<Pass<1>>();
    auto third = std::make_unique<Pass<2>>();
    auto fourth = std::make_unique<Pass<3>>();
    Visitor *all[] = {first.get(), second.get(), third.get(), fourth.get()};
    for (int i = 0; i < 4; i++) first->others[i] = second->others[i] = third->others[i] = fourth->others[i] = all[i];
    unsigned long made = 0;
    for (unsigned round = 0; round < rounds; round++) made += all[round % 4]->visit(28, round);
    return made;
}

int main(int, char **argv) {
    unsigned threads = static_cast<unsigned>(atoi(argv[1])), rounds = static_cast<unsigned>(atoi(argv[2]));
    std::vector<std::thread> workers;
    unsigned long made = 0;
    for (unsigned i = 1; i < threads; i++) workers.emplace_back(visit_often, rounds);
    made = visit_often(rounds);
    for (auto &worker : workers) worker.join();
    printf("%lu\n", made);
}
