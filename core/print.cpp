// Printing of tensors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "gradus/core/tensor.h"

namespace gradus {
namespace {

constexpr std::int64_t edge = 3, summary_above = 1000;

/// All shown elements are formatted in one style, as wide as the widest.
class Printer {
  public:
    explicit Printer(const Tensor& x) : x_(x), values_(x.to_vector<double>()), summary_(x.numel() > summary_above) {
        if (is_floating(x.dtype())) choose_style();
        for_shown(0, 0, [&](std::int64_t i) { width_ = std::max(width_, format(i).size()); });
    }

    std::string text() {
        std::string out;
        if (x_.rank() == 0) return format(0);
        print(out, 0, 0);
        return out;
    }

  private:
    void choose_style() {
        double largest = 0, smallest = INFINITY;
        bool whole = true;
        for_shown(0, 0, [&](std::int64_t i) {
            const double v = std::abs(values_[std::size_t(i)]);
            if (!std::isfinite(v)) return;
            whole = whole && v == std::floor(v);
            largest = std::max(largest, v);
            if (v != 0) smallest = std::min(smallest, v);
        });
        if (whole && largest < 1e8)
            style_ = whole_numbers;
        else if (largest >= 1e8 || (largest != 0 && (smallest < 1e-4 || largest / smallest > 1e3 * 1e3)))
            style_ = scientific;
    }

    std::string format(std::int64_t i) const {
        const double v = values_[std::size_t(i)];
        char buffer[48];
        if (x_.dtype() == DType::boolean) return v != 0 ? "true" : "false";
        if (!is_floating(x_.dtype())) {
            std::snprintf(buffer, sizeof buffer, "%lld", static_cast<long long>(integers()[std::size_t(i)]));
            return buffer;
        }
        if (std::isnan(v)) return "nan";
        if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
        const char* formats[] = {"%.4f", "%.0f.", "%.4e"};
        std::snprintf(buffer, sizeof buffer, formats[style_], v);
        return buffer;
    }

    const std::vector<std::int64_t>& integers() const {
        if (integers_.empty()) integers_ = x_.to_vector<std::int64_t>();
        return integers_;
    }

    template <class F>
    void for_shown(int axis, std::int64_t first, F&& f) const {
        if (x_.numel() == 0) return;
        if (axis == x_.rank()) return f(first);
        const std::int64_t n = x_.shape()[axis];
        std::int64_t below = 1;
        for (int i = axis + 1; i < x_.rank(); ++i) below *= x_.shape()[i];
        for (std::int64_t i = 0; i < n; ++i) {
            if (skips(n) && i == edge) i = n - edge;
            for_shown(axis + 1, first + i * below, f);
        }
    }

    bool skips(std::int64_t n) const { return summary_ && n > 2 * edge; }

    void print(std::string& out, int axis, std::int64_t first) const {
        const std::int64_t n = x_.shape()[axis];
        const bool last = axis + 1 == x_.rank();
        std::int64_t below = 1;
        for (int i = axis + 1; i < x_.rank(); ++i) below *= x_.shape()[i];
        const std::string gap =
            last ? " " : std::string(std::size_t(x_.rank() - axis - 1), '\n') + std::string(std::size_t(axis + 1), ' ');
        out += '[';
        for (std::int64_t i = 0; i < n; ++i) {
            if (i) out += (last ? "," : ",") + gap;
            if (skips(n) && i == edge) {
                out += "..." + std::string(",") + gap;
                i = n - edge;
            }
            if (last) {
                const std::string element = format(first + i);
                out += std::string(width_ - element.size(), ' ') + element;
            } else {
                print(out, axis + 1, first + i * below);
            }
        }
        out += ']';
    }

    enum Style { fixed, whole_numbers, scientific };
    const Tensor& x_;
    std::vector<double> values_;
    mutable std::vector<std::int64_t> integers_;
    bool summary_;
    Style style_ = fixed;
    std::size_t width_ = 0;
};

}  // namespace

std::string to_string(const Tensor& x) {
    if (!x.defined()) return "tensor(undefined)";
    std::string body;
    if (x.numel() == 0)
        body = "[]";
    else
        body = Printer(x).text();
    std::string out = "tensor(";
    for (std::size_t i = 0; i < body.size(); ++i) {
        out += body[i];
        if (body[i] == '\n' && body[i + 1] != '\n') out += "       ";
    }
    if (x.numel() == 0) out += text(", shape ", x.shape());
    if (x.dtype() != DType::f32) out += text(", ", x.dtype());
    if (x.device() != Device{}) out += text(", ", x.device());
    if (x.requires_grad()) out += ", requires_grad";
    return out + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace gradus
