// What a C++ program asks for through its library: strings, maps, streams, regular expressions, functions, in threads too.
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual std::string name() const = 0;
};
template <int Sides> struct Polygon : Shape {
    std::vector<double> sides = std::vector<double>(Sides, 1.0);
    std::string name() const override { return "a polygon that has this many sides: " + std::to_string(Sides); }
};

static std::size_t work(int rounds) {
    std::map<std::string, std::vector<std::unique_ptr<Shape>>> shapes;
    for (int i = 0; i < rounds; i++) {
        auto shape = i % 2 ? std::unique_ptr<Shape>(new Polygon<3>) : std::make_unique<Polygon<40>>();
        std::ostringstream text;
        text << shape->name() << " " << i % 50 << " " << i * 0.5;
        shapes[text.str()].push_back(std::move(shape));
    }
    std::regex wanted("(sides: )([0-9]+) (.*)5");
    std::function<std::size_t(const std::string &)> count = [&, note = std::string(100, 'x')](const std::string &text) {
        std::smatch found;
        return std::regex_search(text, found, wanted) ? found[3].str().size() + note.size() : 0;
    };
    std::size_t sum = 0;
    for (auto &[text, all] : shapes) sum += count(text) * all.size();
    return sum;
}

int main() {
    std::size_t sums[3];
    std::thread one([&] { sums[0] = work(300); }), two([&] { sums[1] = work(400); });
    sums[2] = work(500);
    one.join();
    two.join();
    std::cout << sums[0] + sums[1] + sums[2] << std::endl;
}
