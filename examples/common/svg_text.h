// Growing SVG text: numbers, text elements, and the measures of words.
#pragma once

#include <string>
#include <string_view>

namespace gradus::examples {

inline constexpr const char* ink = "#1f2933";       // titles
inline constexpr const char* soft_ink = "#52606d";  // labels and ticks
inline constexpr const char* rule = "#e4e7eb";      // grid lines

/// A coordinate with at most two decimals, whatever the locale.
std::string coordinate(double value);

/// A tick's label for ticks `step` apart: as many decimals as the step needs, k, M and G for thousands, an exponent far
/// out.
std::string tick_label(double value, double step);

/// An estimate of a text's width in pixels: East Asian characters are one em wide, others 0.56.
double text_width(std::string_view text, double size);

/// Collects the elements of one document.
class SvgText {
  public:
    SvgText(double width, double height);

    void line(double x1, double y1, double x2, double y2, std::string_view colour, double stroke);
    void rectangle(double x, double y, double width, double height, std::string_view fill, std::string_view more = "");
    /// anchor: start, middle or end; `angle` in degrees turns the text round its anchor.
    void text(double x, double y, std::string_view words, double size, std::string_view colour, const char* anchor,
              double angle = 0, bool bold = false);
    void raw(std::string_view element) { body_ += element; }

    std::string document() const { return body_ + "</svg>\n"; }

  private:
    std::string body_;
};

}  // namespace gradus::examples
