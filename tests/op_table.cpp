#include "gradus/tests/op_table.h"

#include <random>

namespace gradus::tests {

const std::vector<OpRow>& op_table() {
    static const std::vector<OpRow> table = [] {
        std::vector<OpRow> all;
        for (auto family : {pointwise_rows, reduce_rows, view_rows, product_rows, index_rows, loss_rows})
            for (OpRow& row : family()) all.push_back(std::move(row));
        return all;
    }();
    return table;
}

const char* name_of(Lay lay) {
    switch (lay) {
        case Lay::contiguous:
            return "contiguous";
        case Lay::transposed:
            return "transposed";
        case Lay::stepped:
            return "stepped";
        case Lay::expanded:
            return "expanded";
    }
    return "?";
}

bool possible(Lay lay, const Sizes& shape) {
    if (lay == Lay::contiguous) return true;
    return shape.size() >= (lay == Lay::transposed ? 2u : 1u);
}

Sizes base_shape(Lay lay, const Sizes& shape) {
    Sizes base = shape;
    const std::size_t n = base.size();
    if (lay == Lay::transposed) std::swap(base[n - 1], base[n - 2]);
    if (lay == Lay::stepped) base[n - 1] = 2 * base[n - 1] + 1;
    if (lay == Lay::expanded) base[0] = 1;
    return base;
}

Tensor laid(Lay lay, const Tensor& base, const Sizes& shape) {
    if (lay == Lay::transposed) return transpose(base);
    if (lay == Lay::stepped) return slice(base, -1, 1, base.size(-1), 2);
    if (lay == Lay::expanded) return expand(base, shape);
    return base;
}

Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype) {
    return visit(dtype, [&](auto zero) {
        using E = decltype(zero);
        std::vector<E> elements;
        for (const double v : values) {
            if constexpr (std::is_same_v<E, bfloat16> || std::is_same_v<E, float16>)
                elements.push_back(E(float(v)));
            else
                elements.push_back(E(v));
        }
        return Tensor::from(elements, shape, Device{});
    });
}

Tensor draw(const Operand& operand, const Sizes& shape, DType dtype, std::uint64_t salt) {
    std::mt19937_64 bits(salt);
    std::vector<double> values;
    const auto near_kink = [&](double v) {
        for (const double kink : operand.avoid)
            if (std::abs(v - kink) < 0.1) return true;
        return false;
    };
    for (std::int64_t i = 0; i < reference::count(shape); ++i) {
        double v = 0;
        do {
            v = operand.low + (operand.high - operand.low) * double(bits() >> 11) * 0x1p-53;
            if (operand.kind != Operand::number || !is_floating(dtype)) v = std::floor(v);
        } while (near_kink(v));
        values.push_back(v);
    }
    if (operand.kind == Operand::boolean) dtype = DType::boolean;
    if (operand.kind == Operand::index) dtype = salt % 2 ? DType::i64 : DType::i32;
    return tensor_of(values, shape, dtype);
}

Array plain(const Tensor& x) { return {Sizes(x.shape().begin(), x.shape().end()), x.to_vector<double>()}; }

}  // namespace gradus::tests
