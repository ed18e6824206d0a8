// Something for a compiler to chew on: templates, regular expressions, ranges, streams. It is compiled, not run.
#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <ranges>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <int Depth>
struct Tree {
    struct Leaf { std::string name; std::optional<double> value; };
    std::variant<Leaf, std::vector<std::unique_ptr<Tree<Depth - 1>>>> node;
    std::map<std::string, std::function<double(const Tree &)>> visitors;
    double fold() const {
        return std::visit([](const auto &n) -> double {
            if constexpr (requires { n.value; }) return n.value.value_or(Depth);
            else return std::accumulate(n.begin(), n.end(), 0.0, [](double s, const auto &t) { return s + t->fold(); });
        }, node);
    }
};
template <> struct Tree<0> { double fold() const { return 1; } };

template <std::size_t... I>
double forest(std::index_sequence<I...>) {
    auto all = std::make_tuple(Tree<static_cast<int>(I) + 1>{}...);
    return std::apply([](const auto &...t) { return (t.fold() + ...); }, all);
}

template <class Range>
std::string squares(Range &&range) {
    std::ostringstream out;
    for (auto v : range | std::views::filter([](int i) { return i % 3 == 0; }) | std::views::transform([](int i) { return i * i; }))
        out << v << ',';
    return out.str();
}

int main(int argc, char **argv) {
    std::vector<int> numbers(static_cast<std::size_t>(argc) * 100);
    std::iota(numbers.begin(), numbers.end(), argc);
    std::regex word("([a-z]+)-([0-9]{2,4})", std::regex::ECMAScript | std::regex::icase);
    std::unordered_map<std::string, std::array<std::map<int, std::string>, 4>> index;
    std::string text = argv[0];
    for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i)
        index[i->str(1)][i->length() % 4][std::stoi(i->str(2))] = std::regex_replace(text, word, "$2-$1");
    std::ranges::sort(numbers, std::greater{});
    std::cout << squares(numbers) << forest(std::make_index_sequence<12>{}) << index.size() << '\n';
}
