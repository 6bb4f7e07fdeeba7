// Charts as SVG text: line charts and heat maps, without any library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::examples {

/// A named line of points (x[i], y[i]); a point that is not finite breaks the line.
struct Series {
    std::string name;
    std::vector<double> x, y;
    bool second_axis = false;  // measured on the right-hand axis
};

/// What a line chart shows; empty labels are left out.
struct LineChart {
    std::string title, x_label, y_label, second_label;
    std::vector<Series> series;
    int64_t width = 860, height = 480;
};

/// A matrix of values in [0, 1] with a label for each row and column.
struct HeatMap {
    std::string title, row_title, column_title;
    std::vector<std::string> row_labels, column_labels;
    std::vector<double> values;  // row by row: row_labels.size() * column_labels.size()
    std::string scale_label;
};

/// The chart as a complete SVG document. A chart without a finite point shows its frame and "no data". Throws
/// gradus::Error when the x and y of a series differ in length.
std::string render(const LineChart& chart);

/// The heat map as a complete SVG document; values outside [0, 1] are clamped, NaN is hatched grey. Throws
/// gradus::Error when the values do not match the labels or there are none.
std::string render(const HeatMap& map);

/// Text made safe inside an SVG element or attribute: & < > " ' become entities, control characters and malformed
/// UTF-8 become U+FFFD.
std::string escape_xml(std::string_view raw);

/// About `count` round numbers (1, 2 or 5 times a power of ten apart) that lie in [low, high].
std::vector<double> nice_ticks(double low, double high, int count);

}  // namespace gradus::examples
