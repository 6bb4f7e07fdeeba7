#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/core/error.h"
#include "gradus/examples/common/svg.h"
#include "gradus/examples/common/svg_text.h"

namespace gradus::examples {

namespace {

// Told apart by people with colour blindness, too (blue, vermilion, green, purple, amber, sky, grey).
constexpr const char* palette[] = {"#2166ac", "#d1495b", "#2a9d6f", "#7b52ab", "#d98e04", "#1aa7c4", "#6b7280"};

// One direction of the plot: the range of the data, stretched to its ticks, and where it lies in pixels.
struct Axis {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    double from = 0, to = 1;  // pixels of low and high
    std::vector<double> ticks;
    double step = 1;

    bool empty() const { return low > high; }
    void include(double value) { low = std::min(low, value), high = std::max(high, value); }
    double place(double value) const { return from + (to - from) * ((value - low) / (high - low)); }

    void choose_ticks(int count, bool stretch) {
        if (empty()) low = 0, high = 1;
        if (high - low <= std::abs(high) * 1e-12) {
            const double margin = high == 0 ? 1 : std::abs(high) * 0.1;
            low -= margin, high += margin;
        }
        ticks = nice_ticks(low, high, count);
        step = ticks.size() > 1 ? ticks[1] - ticks[0] : high - low;
        if (!stretch) return;
        low = std::floor(low / step + 1e-9) * step;
        high = std::ceil(high / step - 1e-9) * step;
        ticks = nice_ticks(low, high, count);
    }
};

bool is_point(const Series& series, size_t i) { return std::isfinite(series.x[i]) && std::isfinite(series.y[i]); }

void draw_series(SvgText& svg, const Series& series, const Axis& x, const Axis& y, const std::string& colour) {
    std::string path;
    bool pen_down = false;
    size_t points = 0;
    for (size_t i = 0; i < series.x.size(); ++i) {
        const bool point = is_point(series, i);
        if (point) {
            path += (pen_down ? "L" : "M") + coordinate(x.place(series.x[i])) + " " + coordinate(y.place(series.y[i]));
            ++points;
        }
        pen_down = point;
    }
    if (path.empty()) return;
    svg.raw("<path d=\"" + path + "\" fill=\"none\" stroke=\"" + colour +
            "\" stroke-width=\"2\" stroke-linejoin=\"round\"" + " stroke-linecap=\"round\"" +
            (series.second_axis ? " stroke-dasharray=\"6 4\"" : "") + "/>\n");
    if (points > 40) return;
    for (size_t i = 0; i < series.x.size(); ++i) {
        if (!is_point(series, i)) continue;
        svg.raw("<circle cx=\"" + coordinate(x.place(series.x[i])) + "\" cy=\"" + coordinate(y.place(series.y[i])) +
                "\" r=\"3\" fill=\"" + colour + "\" stroke=\"#ffffff\"/>\n");
    }
}

// Names in rows from the left; returns the height they take.
double draw_legend(SvgText& svg, const std::vector<Series>& series, double left, double top, double right) {
    constexpr double size = 12, row = 20;
    double x = left, y = top;
    for (size_t i = 0; i < series.size(); ++i) {
        const std::string name = series[i].name + (series[i].second_axis ? " (right)" : "");
        const double width = 30 + text_width(name, size) + 18;
        if (x > left && x + width > right) x = left, y += row;
        svg.raw("<line x1=\"" + coordinate(x) + "\" y1=\"" + coordinate(y + 6) + "\" x2=\"" + coordinate(x + 22) +
                "\" y2=\"" + coordinate(y + 6) + "\" stroke=\"" + palette[i % std::size(palette)] +
                "\" stroke-width=\"2.5\"" + (series[i].second_axis ? " stroke-dasharray=\"6 4\"" : "") + "/>\n");
        svg.text(x + 28, y + 10, name, size, ink, "start");
        x += width;
    }
    return series.empty() ? 0 : y - top + row;
}

double label_room(const Axis& axis) {
    double room = 0;
    for (const double tick : axis.ticks) room = std::max(room, text_width(tick_label(tick, axis.step), 11));
    return room;
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int count) {
    check(std::isfinite(low) && std::isfinite(high) && low <= high && count > 0, "nice_ticks: no range from ", low,
          " to ", high, " in ", count, " steps");
    if (low == high) return {low};
    const double rough = (high - low) / count;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    const double digit = rough / power;
    const double step = power * (digit <= 1.0 ? 1 : digit <= 2.0 ? 2 : digit <= 5.0 ? 5 : 10);
    std::vector<double> ticks;
    const double first = std::ceil(low / step - 1e-9);
    // Multiples of the step, not a running sum: 0.1 + 0.1 + 0.1 is not 0.3.
    for (double i = first; i * step <= high + step * 1e-9; i += 1) ticks.push_back(i * step);
    return ticks;
}

std::string render(const LineChart& chart) {
    Axis x, y, second;
    for (const Series& series : chart.series) {
        check(series.x.size() == series.y.size(), "line chart: the series ", series.name, " has ", series.x.size(),
              " x and ", series.y.size(), " y values");
        for (size_t i = 0; i < series.x.size(); ++i) {
            if (!is_point(series, i)) continue;
            x.include(series.x[i]);
            (series.second_axis ? second : y).include(series.y[i]);
        }
    }
    const bool has_points = !x.empty(), has_second = !second.empty();
    x.choose_ticks(8, false);
    y.choose_ticks(6, true);
    second.choose_ticks(6, true);

    const auto width = static_cast<double>(chart.width), height = static_cast<double>(chart.height);
    SvgText svg(width, height);
    double top = 16;
    const double left = 24 + label_room(y) + (chart.y_label.empty() ? 0 : 20);
    const double right = width - 24 - (has_second ? label_room(second) + (chart.second_label.empty() ? 0 : 20) : 0);
    if (!chart.title.empty()) {
        svg.text(left, top + 14, chart.title, 16, ink, "start", 0, true);
        top += 30;
    }
    top += draw_legend(svg, chart.series, left, top, right) + 6;
    const double bottom = height - 34 - (chart.x_label.empty() ? 0 : 20);
    x.from = left, x.to = right;
    y.from = second.from = bottom, y.to = second.to = top;

    for (const double tick : y.ticks) {
        svg.line(left, y.place(tick), right, y.place(tick), rule, 1);
        svg.text(left - 8, y.place(tick) + 4, tick_label(tick, y.step), 11, soft_ink, "end");
    }
    for (const double tick : x.ticks) {
        svg.line(x.place(tick), bottom, x.place(tick), bottom + 5, soft_ink, 1);
        svg.text(x.place(tick), bottom + 19, tick_label(tick, x.step), 11, soft_ink, "middle");
    }
    if (has_second) {
        for (const double tick : second.ticks) {
            svg.line(right, second.place(tick), right + 5, second.place(tick), soft_ink, 1);
            svg.text(right + 8, second.place(tick) + 4, tick_label(tick, second.step), 11, soft_ink, "start");
        }
        svg.text(width - 14, (top + bottom) / 2, chart.second_label, 12, soft_ink, "middle", 90);
    }
    svg.line(left, bottom, right, bottom, soft_ink, 1);
    svg.text(20, (top + bottom) / 2, chart.y_label, 12, soft_ink, "middle", -90);
    svg.text((left + right) / 2, height - 12, chart.x_label, 12, soft_ink, "middle");
    for (size_t i = 0; i < chart.series.size(); ++i) {
        const Series& series = chart.series[i];
        draw_series(svg, series, x, series.second_axis ? second : y, palette[i % std::size(palette)]);
    }
    if (!has_points) svg.text((left + right) / 2, (top + bottom) / 2, "no data", 14, soft_ink, "middle");
    return svg.document();
}

}  // namespace gradus::examples
