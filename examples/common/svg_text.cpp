#include "gradus/examples/common/svg_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gradus/examples/common/files.h"
#include "gradus/examples/common/svg.h"

namespace gradus::examples {

namespace {

std::string fixed(double value, int decimals) {
    char buffer[400];
    std::string out(buffer,
                    std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, decimals).ptr);
    if (out.find_first_not_of("-0.") == std::string::npos && out[0] == '-') out.erase(0, 1);
    return out;
}

}  // namespace

std::string coordinate(double value) {
    std::string out = fixed(value, 2);
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
    return out;
}

std::string tick_label(double value, double step) {
    const double size = std::max(std::abs(value), std::abs(step));
    if (size >= 1e12 || step < 1e-4) {
        char buffer[64];
        return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific, 1).ptr};
    }
    const double unit = step >= 1e8 ? 1e9 : step >= 1e5 ? 1e6 : step >= 100 && size >= 1e4 ? 1e3 : 1;
    const char* name = unit == 1e9 ? "G" : unit == 1e6 ? "M" : unit == 1e3 ? "k" : "";
    // As many decimals as tell the ticks apart without rounding: 0.25 needs two.
    int decimals = 0;
    for (double left = step / unit; decimals < 6 && std::abs(left - std::round(left)) > 1e-6; left *= 10) ++decimals;
    const std::string out = fixed(value / unit, decimals);
    return value == 0 ? "0" : out + name;
}

double text_width(std::string_view text, double size) {
    double ems = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        // In UTF-8 the East Asian scripts begin at U+1100 and take three bytes from lead byte 0xe3 on.
        if ((byte & 0xc0) != 0x80) ems += byte >= 0xe3 ? 1.0 : 0.56;
    }
    return ems * size;
}

std::string escape_xml(std::string_view raw) {
    std::string out;
    for (const char c : repair_utf8(raw)) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            // XML 1.0 has no way to write the other control characters.
            default:
                out +=
                    static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' ? "\xef\xbf\xbd" : std::string(1, c);
        }
    }
    return out;
}

SvgText::SvgText(double width, double height) {
    const std::string w = coordinate(width), h = coordinate(height);
    body_ = R"(<svg xmlns="http://www.w3.org/2000/svg" width=")" + w + R"(" height=")" + h + R"(" viewBox="0 0 )" + w +
            " " + h + R"(" font-family="DejaVu Sans, Noto Sans, Noto Sans CJK SC, Droid Sans Fallback, sans-serif">)" +
            "\n";
    rectangle(0, 0, width, height, "#ffffff");
}

void SvgText::line(double x1, double y1, double x2, double y2, std::string_view colour, double stroke) {
    body_ += "<line x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" + coordinate(x2) + "\" y2=\"" +
             coordinate(y2) + "\" stroke=\"" + std::string(colour) + "\" stroke-width=\"" + coordinate(stroke) +
             "\"/>\n";
}

void SvgText::rectangle(double x, double y, double width, double height, std::string_view fill, std::string_view more) {
    body_ += "<rect x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" width=\"" + coordinate(width) +
             "\" height=\"" + coordinate(height) + "\" fill=\"" + std::string(fill) + "\"" + std::string(more) + "/>\n";
}

void SvgText::text(double x, double y, std::string_view words, double size, std::string_view colour, const char* anchor,
                   double angle, bool bold) {
    if (words.empty()) return;
    body_ += "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" font-size=\"" + coordinate(size) +
             "\" fill=\"" + std::string(colour) + "\" text-anchor=\"" + anchor + "\"";
    if (bold) body_ += " font-weight=\"bold\"";
    if (angle != 0) {
        body_ += " transform=\"rotate(" + coordinate(angle) + " " + coordinate(x) + " " + coordinate(y) + ")\"";
    }
    body_ += ">" + escape_xml(words) + "</text>\n";
}

}  // namespace gradus::examples
