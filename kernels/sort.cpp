#include "gradus/kernels/sort.h"

#include <algorithm>
#include <cassert>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/kernels/parallel.h"

namespace gradus::kernels {
namespace {

using std::int64_t;

/// a > b where NaN is the largest of all.
template <class T>
bool greater(T a, T b) {
    if constexpr (std::is_integral_v<T>)
        return a > b;
    else
        return a > b || (a != a && b == b);
}

/// Where line `line` of a shape (its axes but one) starts in a tensor with these strides.
int64_t line_start(int64_t line, const Shape& shape, int axis, const Strides& strides) {
    int64_t offset = 0;
    for (int i = shape.rank() - 1; i >= 0; --i) {
        if (i == axis) continue;
        offset += line % shape[i] * strides[i];
        line /= shape[i];
    }
    return offset;
}

}  // namespace

void cpu::topk(const Tensor& x, int axis, bool largest, const Tensor& indices) {
    assert(indices.is_contiguous() && indices.size(axis) <= x.size(axis));
    if (indices.numel() == 0) return;
    const int64_t n = x.size(axis), k = indices.size(axis), lines = x.numel() / n;
    const int64_t step = x.strides()[axis], out_step = indices.strides()[axis];
    int64_t* out = indices.data<int64_t>();
    visit(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        using V = std::conditional_t<sizeof(T) == 2, float, T>;
        const T* source = x.data<T>();
        parallel_for(lines, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
            std::vector<std::pair<V, int64_t>> line(static_cast<std::size_t>(n));
            const auto better = [largest](const auto& a, const auto& b) {
                if (largest ? greater(a.first, b.first) : greater(b.first, a.first)) return true;
                if (largest ? greater(b.first, a.first) : greater(a.first, b.first)) return false;
                return a.second < b.second;
            };
            for (int64_t i = begin; i < end; ++i) {
                const T* from = source + line_start(i, x.shape(), axis, x.strides());
                for (int64_t j = 0; j < n; ++j) line[std::size_t(j)] = {V(from[j * step]), j};
                std::partial_sort(line.begin(), line.begin() + k, line.end(), better);
                int64_t* to = out + line_start(i, x.shape(), axis, indices.strides());
                for (int64_t j = 0; j < k; ++j) to[j * out_step] = line[std::size_t(j)].second;
            }
        });
    });
}

}  // namespace gradus::kernels
