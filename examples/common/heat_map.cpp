#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "gradus/core/error.h"
#include "gradus/examples/common/svg.h"
#include "gradus/examples/common/svg_text.h"

namespace gradus::examples {

namespace {

// White through blue to near black, so that lightness alone orders the values, on grey paper too.
std::string shade(double value) {
    static constexpr std::array<std::array<double, 3>, 5> stops = {
        {{247, 250, 253}, {189, 215, 238}, {94, 158, 211}, {32, 92, 163}, {8, 32, 80}}};
    const double at = std::clamp(value, 0.0, 1.0) * (stops.size() - 1);
    const auto below = std::min(static_cast<size_t>(at), stops.size() - 2);
    const double part = at - static_cast<double>(below);
    std::array<int, 3> rgb{};
    for (size_t i = 0; i < 3; ++i) {
        rgb[i] = static_cast<int>(std::lround(stops[below][i] * (1 - part) + stops[below + 1][i] * part));
    }
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "#%02x%02x%02x", rgb[0] & 0xff, rgb[1] & 0xff, rgb[2] & 0xff);
    return buffer;
}

double widest(const std::vector<std::string>& labels, double size) {
    double width = 0;
    for (const std::string& label : labels) width = std::max(width, text_width(label, size));
    return width;
}

void draw_scale(SvgText& svg, double left, double top, double height, const std::string& label) {
    constexpr int steps = 40;
    for (int i = 0; i < steps; ++i) {
        // Each step overlaps the next by half a pixel: no seams when the picture is scaled.
        svg.rectangle(left, top + height * i / steps, 14, height / steps + (i + 1 < steps ? 0.5 : 0),
                      shade(1 - (i + 0.5) / steps));
    }
    svg.rectangle(left, top, 14, height, "none", " stroke=\"#9aa5b1\" stroke-width=\"0.5\"");
    const std::vector<double> ticks =
        height < 100 ? std::vector<double>{0, 1} : std::vector<double>{0, 0.2, 0.4, 0.6, 0.8, 1};
    const double step = ticks[1];
    for (const double tick : ticks)
        svg.text(left + 20, top + height * (1 - tick) + 4, tick_label(tick, step), 11, soft_ink, "start");
    svg.text(left + 64, top + height / 2, label, 12, soft_ink, "middle", 90);
}

}  // namespace

std::string render(const HeatMap& map) {
    const size_t rows = map.row_labels.size(), columns = map.column_labels.size();
    check(rows > 0 && columns > 0, "heat map: ", rows, " rows and ", columns,
          " columns; at least one of each is needed");
    check(map.values.size() == rows * columns, "heat map: ", map.values.size(), " values for ", rows, " rows and ",
          columns, " columns");
    constexpr double size = 12;
    const auto most = static_cast<double>(std::max(rows, columns));
    const double cell = std::clamp(640.0 / most, 16.0, 36.0);
    // Column labels stand upright if they fit a cell, else lean.
    const double label_width = widest(map.column_labels, size);
    const bool lean = label_width > cell - 4;
    const double label_height = lean ? label_width * 0.71 + 14 : size + 8;
    const double top = 16 + (map.title.empty() ? 0 : 28) + (map.column_title.empty() ? 0 : 20) + label_height;
    const double left = 20 + (map.row_title.empty() ? 0 : 20) + widest(map.row_labels, size) + 8;
    const double right = left + cell * static_cast<double>(columns), bottom = top + cell * static_cast<double>(rows);
    const double lean_room = lean ? text_width(map.column_labels.back(), size) * 0.71 : 0;
    const double scale_left = right + std::max(24.0, lean_room - cell / 2 - 40);
    const double title_width = map.title.empty() ? 0 : 24 + text_width(map.title, 17);
    SvgText svg(std::max({scale_left + 64 + 18, right + lean_room + 12, title_width + 16}), bottom + 20);

    if (!map.title.empty()) svg.text(20, 30, map.title, 16, ink, "start", 0, true);
    svg.text((left + right) / 2, top - label_height - 4, map.column_title, 12, soft_ink, "middle");
    svg.text(22, (top + bottom) / 2, map.row_title, 12, soft_ink, "middle", -90);
    for (size_t c = 0; c < columns; ++c) {
        const double x = left + cell * (static_cast<double>(c) + 0.5);
        svg.text(lean ? x + 4 : x, top - 8, map.column_labels[c], size, ink, lean ? "start" : "middle", lean ? -45 : 0);
    }
    for (size_t r = 0; r < rows; ++r) {
        const double y = top + cell * static_cast<double>(r);
        svg.text(left - 8, y + cell / 2 + 4, map.row_labels[r], size, ink, "end");
        for (size_t c = 0; c < columns; ++c) {
            const double value = map.values[r * columns + c], x = left + cell * static_cast<double>(c);
            const bool known = !std::isnan(value);
            svg.rectangle(x, y, cell - 1, cell - 1, known ? shade(value) : "#c4c4c4");
            if (!known) svg.line(x, y + cell - 1, x + cell - 1, y, "#8a8a8a", 1);
        }
    }
    draw_scale(svg, scale_left, top, bottom - top - 1, map.scale_label);
    return svg.document();
}

}  // namespace gradus::examples
