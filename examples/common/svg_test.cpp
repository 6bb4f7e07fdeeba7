#include "gradus/examples/common/svg.h"

#include <cmath>
#include <limits>

#include "gradus/examples/common/svg_text.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
    return found;
}

}  // namespace

TEST_CASE("ticks are round and lie in the range", "[examples][svg]") {
    CHECK(nice_ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
    CHECK(nice_ticks(0.13, 0.87, 5).size() == 4);
    CHECK(nice_ticks(-1, 1, 4) == std::vector<double>{-1, -0.5, 0, 0.5, 1});
    CHECK(nice_ticks(5, 5, 4) == std::vector<double>{5});
    for (const double scale : {1e-9, 1e-3, 1.0, 1e6, 1e12}) {
        const auto ticks = nice_ticks(0.7 * scale, 9.3 * scale, 6);
        REQUIRE(ticks.size() >= 3);
        CHECK(ticks.size() <= 8);
        CHECK(ticks.front() >= 0.7 * scale * (1 - 1e-9));
        CHECK(ticks.back() <= 9.3 * scale * (1 + 1e-9));
    }
    CHECK(contains(error_of([] { nice_ticks(std::nan(""), 1, 5); }), "no range"));
}

TEST_CASE("tick labels have the decimals of their step", "[examples][svg]") {
    CHECK(tick_label(0.3, 0.1) == "0.3");
    CHECK(tick_label(0.75, 0.25) == "0.75");
    CHECK(tick_label(25000, 2500) == "25.0k");
    CHECK(tick_label(-5, 5) == "-5");
    CHECK(tick_label(0, 1000) == "0");
    CHECK(tick_label(2000, 1000) == "2000");
    CHECK(tick_label(20000, 5000) == "20k");
    CHECK(tick_label(3e6, 1e6) == "3M");
    CHECK(tick_label(2e-7, 1e-7) == "2.0e-07");
    CHECK(coordinate(1.0) == "1");
    CHECK(coordinate(-0.001) == "0");
    CHECK(coordinate(12.345) == "12.35");
}

TEST_CASE("text in an SVG is escaped", "[examples][svg]") {
    CHECK(escape_xml("<a & \"b\" 'c'>") == "&lt;a &amp; &quot;b&quot; &#39;c&#39;&gt;");
    CHECK(escape_xml("中\x01\xff") == "中\xef\xbf\xbd\xef\xbf\xbd");
    LineChart chart;
    chart.title = "a<b";
    chart.series = {{"x&y", {0, 1}, {0, 1}, false}};
    const std::string svg = render(chart);
    CHECK(contains(svg, "a&lt;b"));
    CHECK(contains(svg, "x&amp;y"));
    CHECK_FALSE(contains(svg, "a<b"));
}

TEST_CASE("a line chart draws each finite stretch", "[examples][svg]") {
    const double nan = std::nan("");
    LineChart chart;
    chart.series = {{"loss", {0, 1, 2, 3, 4}, {5, 4, nan, 3, 2}, false}, {"BLEU", {0, 4}, {1, 20}, true}};
    const std::string svg = render(chart);
    CHECK(svg.rfind("<svg ", 0) == 0);
    CHECK(count(svg, "<path") == 2);
    CHECK(count(svg, "<circle") == 6);
    // The gap lifts the pen once: two starts in the first path.
    const size_t path = svg.find("<path d=\"");
    CHECK(count(svg.substr(path, svg.find('"', path + 9) - path), "M") == 2);
    CHECK(contains(svg, "BLEU (right)"));
    CHECK_FALSE(contains(svg, "nan"));
    CHECK_FALSE(contains(svg, "no data"));
}

TEST_CASE("a line chart survives no data, one point, and equal values", "[examples][svg]") {
    LineChart chart;
    CHECK(contains(render(chart), "no data"));
    const double infinity = std::numeric_limits<double>::infinity();
    chart.series = {{"a", {1}, {infinity}, false}};
    CHECK(contains(render(chart), "no data"));
    chart.series = {{"a", {1}, {0}, false}};
    CHECK(count(render(chart), "<circle") == 1);
    chart.series = {{"a", {1, 2}, {3, 3}, false}, {"b", {1, 2}, {-1e300, 1e-300}, true}};
    for (const char* bad : {"nan", "inf"}) CHECK_FALSE(contains(render(chart), bad));
    chart.series = {{"a", {1, 2}, {3}, false}};
    CHECK(contains(error_of([&] { render(chart); }), "the series a has 2 x and 1 y values"));
}

TEST_CASE("a heat map has a cell for each value and its labels", "[examples][svg]") {
    HeatMap map;
    map.row_labels = {"the", "<s>"};
    map.column_labels = {"中", "文", "x"};
    map.values = {0, 0.5, 1, -3, 7, std::nan("")};
    const std::string svg = render(map);
    CHECK(contains(svg, ">中</text>"));
    CHECK(contains(svg, ">&lt;s&gt;</text>"));
    CHECK(count(svg, "#f7fafd") == 2);  // 0 and the clamped -3
    CHECK(count(svg, "#082050") == 2);  // 1 and the clamped 7
    CHECK(count(svg, "#c4c4c4") == 1);
    map.values.pop_back();
    CHECK(contains(error_of([&] { render(map); }), "5 values for 2 rows and 3 columns"));
    CHECK(contains(error_of([] { render(HeatMap()); }), "0 rows and 0 columns"));
}
