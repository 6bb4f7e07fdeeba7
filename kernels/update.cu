// Optimizer updates and gradient sums on a card: one launch for all parameters of a dtype.
//
// Bytes a parameter (f32): SGD 12, with momentum 20; Adam 28 (p, m, v read and written, g read). Both wait for memory:
// 63 million parameters take 0.41 ms at 4.3 TB/s with Adam. The norm by which gradients are clipped is read where the
// sums left it, so the host does not wait between backward and the update. Setting gradients to zero costs nothing:
// the first write of the next backward replaces them.
#include "gradus/kernels/update.h"

#include "gradus/kernels/multi_tensor.cuh"
#include "gradus/kernels/update_checks.h"

namespace gradus::kernels::cuda {
namespace {

constexpr int threads = 256;

/// GradientScale as a kernel takes it.
struct Factor {
    double scale, limit;
    const double* squares;  // null: not clipped

    explicit Factor(const GradientScale& s)
        : scale(s.scale), limit(s.limit), squares(s.squares.defined() ? s.squares.data<double>() : nullptr) {}
    __device__ double value() const { return squares ? scale * clip_factor(scale * ::sqrt(*squares), limit) : scale; }
};

template <class T>
struct SgdRow {
    using W = Wide<T>;
    T* p;
    const T* gradient;
    W* buffer;
    std::int64_t n, first_chunk;
    W lr, momentum, fresh, decay;
    bool first, nesterov;

    explicit SgdRow(const SgdUpdate& u)
        : p(u.parameter.data<T>()),
          gradient(u.gradient.data<T>()),
          buffer(u.buffer.defined() ? u.buffer.data<W>() : nullptr),
          n(u.parameter.numel()),
          lr(W(u.step.lr)),
          momentum(W(u.step.momentum)),
          fresh(W(1 - u.step.dampening)),
          decay(W(u.step.weight_decay)),
          first(u.step.first),
          nesterov(u.step.nesterov) {}
};

template <class T>
__global__ void __launch_bounds__(threads) sgd_kernel(Rows<SgdRow<T>> rows, Factor factor) {
    using W = Wide<T>;
    const W scale = W(factor.value());
    for (std::int64_t chunk = blockIdx.x; chunk < rows.chunks; chunk += gridDim.x) {
        const SgdRow<T> r = rows.of(chunk);
        const std::int64_t begin = (chunk - r.first_chunk) * chunk_size;
        const std::int64_t end = begin + chunk_size < r.n ? begin + chunk_size : r.n;
        for (std::int64_t i = begin + threadIdx.x; i < end; i += threads) {
            const W x = W(r.p[i]), g = W(r.gradient[i]) * scale + r.decay * x;
            W direction = g;
            if (r.buffer) {
                const W b = r.first ? g : r.momentum * r.buffer[i] + r.fresh * g;
                r.buffer[i] = b;
                direction = r.nesterov ? g + r.momentum * b : b;
            }
            r.p[i] = T(x - r.lr * direction);
        }
    }
}

template <class T>
struct AdamRow {
    using W = Wide<T>;
    T* p;
    const T* gradient;
    W *mean, *square;
    std::int64_t n, first_chunk;
    W size, root, eps, beta1, fresh1, beta2, fresh2, keep, decay;
    bool aligned;

    explicit AdamRow(const AdamUpdate& u)
        : p(u.parameter.data<T>()),
          gradient(u.gradient.data<T>()),
          mean(u.mean.data<W>()),
          square(u.square.data<W>()),
          n(u.parameter.numel()),
          size(W(u.step.lr / (1 - std::pow(u.step.beta1, double(u.step.t))))),
          root(W(1 / std::sqrt(1 - std::pow(u.step.beta2, double(u.step.t))))),
          eps(W(u.step.eps)),
          beta1(W(u.step.beta1)),
          fresh1(W(1 - u.step.beta1)),
          beta2(W(u.step.beta2)),
          fresh2(W(1 - u.step.beta2)),
          keep(W(u.step.decoupled ? 1 - u.step.lr * u.step.weight_decay : 1)),
          decay(W(u.step.decoupled ? 0 : u.step.weight_decay)),
          aligned(aligned16(p) && aligned16(gradient) && aligned16(mean) && aligned16(square)) {}
    __device__ W updated(W x, W g, W& m, W& v) const {
        g += decay * x;
        m = beta1 * m + fresh1 * g, v = beta2 * v + fresh2 * (g * g);
        return x * keep - size * (m / (math::sqrt(v) * root + eps));
    }
};

template <class T>
__global__ void __launch_bounds__(threads) adam_kernel(Rows<AdamRow<T>> rows, Factor factor) {
    using W = Wide<T>;
    constexpr int lanes = vector_lanes<W>;
    const W scale = W(factor.value());
    for (std::int64_t chunk = blockIdx.x; chunk < rows.chunks; chunk += gridDim.x) {
        const AdamRow<T> r = rows.of(chunk);
        const std::int64_t begin = (chunk - r.first_chunk) * chunk_size;
        const std::int64_t end = begin + chunk_size < r.n ? begin + chunk_size : r.n;
        const std::int64_t vectors_end = r.aligned ? end - (end - begin) % lanes : begin;
        for (std::int64_t i = begin + std::int64_t(threadIdx.x) * lanes; i < vectors_end; i += threads * lanes) {
            auto x = *reinterpret_cast<Vector<T, lanes>*>(r.p + i);
            const auto g = *reinterpret_cast<const Vector<T, lanes>*>(r.gradient + i);
            auto m = load16(r.mean + i), v = load16(r.square + i);
#pragma unroll
            for (int l = 0; l < lanes; ++l)
                x.lane[l] = T(r.updated(W(x.lane[l]), W(g.lane[l]) * scale, m.lane[l], v.lane[l]));
            *reinterpret_cast<Vector<T, lanes>*>(r.p + i) = x;
            store16(r.mean + i, m);
            store16(r.square + i, v);
        }
        for (std::int64_t i = vectors_end + threadIdx.x; i < end; i += threads)
            r.p[i] = T(r.updated(W(r.p[i]), W(r.gradient[i]) * scale, r.mean[i], r.square[i]));
    }
}

template <class T>
struct SumRow {
    const T* x;
    std::int64_t n, first_chunk;
    int number;  // among all tensors

    SumRow(const Tensor& tensor, std::size_t i) : x(tensor.data<T>()), n(tensor.numel()), number(int(i)) {}
};

/// partial[c] = Σ x² over a chunk.
template <class T>
__global__ void __launch_bounds__(threads) squares_kernel(Rows<SumRow<T>> rows, double* partial) {
    GRADUS_SHARED(double, scratch, [32]);
    for (std::int64_t chunk = blockIdx.x; chunk < rows.chunks; chunk += gridDim.x) {
        const SumRow<T> r = rows.of(chunk);
        const std::int64_t begin = (chunk - r.first_chunk) * chunk_size;
        const std::int64_t end = begin + chunk_size < r.n ? begin + chunk_size : r.n;
        double sum = 0;
        for (std::int64_t i = begin + threadIdx.x; i < end; i += threads) {
            const double value = double(Wide<T>(r.x[i]));
            sum += value * value;
        }
        sum = block_sum(sum, scratch);
        if (threadIdx.x == 0) partial[chunk] = sum;
        __syncthreads();
    }
}

/// A warp a row: sums[number] = Σ of its partial sums, in order.
template <class T>
__global__ void __launch_bounds__(threads)
    row_totals_kernel(Rows<SumRow<T>> rows, const double* partial, double* sums) {
    const int lane = int(threadIdx.x % 32), warps = int(gridDim.x) * (threads / 32);
    for (int i = int(blockIdx.x) * (threads / 32) + int(threadIdx.x / 32); i < rows.count; i += warps) {
        const SumRow<T> r = rows.row[i];
        const std::int64_t end = r.first_chunk + (r.n + chunk_size - 1) / chunk_size;
        double sum = 0;
        for (std::int64_t c = r.first_chunk + lane; c < end; c += 32) sum += partial[c];
        sum = warp_sum(sum);
        if (lane == 0) sums[r.number] = sum;
    }
}

/// sums[count] = Σ of those before.
__global__ void __launch_bounds__(threads) total_kernel(double* sums, std::int64_t count) {
    GRADUS_SHARED(double, scratch, [32]);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < count; i += threads) sum += sums[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) sums[count] = sum;
}
template <class T>
__global__ void __launch_bounds__(256) scale_kernel(T* x, Wide<T> factor, std::int64_t n) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        x[i] = T(Wide<T>(x[i]) * factor);
}
template <class T>
__global__ void __launch_bounds__(256) clamp_kernel(T* x, Wide<T> low, Wide<T> high, std::int64_t n) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        const Wide<T> value = Wide<T>(x[i]);
        x[i] = T(value < low ? low : value > high ? high : value);
    }
}

/// f(T(), rows) for each dtype among the updates, with a Row<T> of each update of that dtype.
template <template <class> class Row, class Update, class F>
void each_dtype(const char* op, std::span<const Update> updates, F&& f) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        const auto first = std::ranges::find(updates, dtype, [](const Update& u) { return u.parameter.dtype(); });
        if (first == updates.end()) continue;
        visit_floating(op, first->parameter, [&](auto zero) {
            using T = decltype(zero);
            std::vector<Row<T>> rows;
            for (const Update& u : updates)
                if (u.parameter.dtype() == dtype) rows.emplace_back(u);
            f(zero, rows);
        });
    }
}

}  // namespace

void sgd(std::span<const SgdUpdate> updates, const GradientScale& scale) {
    const Device device = updates.front().parameter.device();
    check_scale("sgd", scale, device);
    for (const SgdUpdate& u : updates) check_update(u, device);
    each_dtype<SgdRow>("sgd", updates, [&]<class T>(T, const std::vector<SgdRow<T>>& rows) {
        const Table<SgdRow<T>> table(rows, device);
        GRADUS_LAUNCH((sgd_kernel<T>), device, grid_for(table.rows().chunks, 1), threads, 0, table.rows(),
                      Factor(scale));
    });
    bump_versions(updates);
}

void adam(std::span<const AdamUpdate> updates, const GradientScale& scale) {
    const Device device = updates.front().parameter.device();
    check_scale("adam", scale, device);
    for (const AdamUpdate& u : updates) check_update(u, device);
    each_dtype<AdamRow>("adam", updates, [&]<class T>(T, const std::vector<AdamRow<T>>& rows) {
        const Table<AdamRow<T>> table(rows, device);
        GRADUS_LAUNCH((adam_kernel<T>), device, grid_for(table.rows().chunks, 1), threads, 0, table.rows(),
                      Factor(scale));
    });
    bump_versions(updates);
}

Tensor sums_of_squares(std::span<const Tensor> xs) {
    const Device device = xs.front().device();
    const Tensor result = Tensor::empty({std::int64_t(xs.size()) + 1}, DType::f64, device);
    double* sums = result.data<double>();
    for (const Tensor& x : xs)
        check(x.device() == device, "sums_of_squares: tensors on ", device, " and on ", x.device());
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        const auto first = std::ranges::find(xs, dtype, [](const Tensor& x) { return x.dtype(); });
        if (first == xs.end()) continue;
        visit_floating("sums_of_squares", *first, [&]<class T>(T) {
            std::vector<SumRow<T>> list;
            for (std::size_t i = 0; i < xs.size(); ++i)
                if (xs[i].dtype() == dtype) list.emplace_back(xs[i], i);
            const Table<SumRow<T>> table(list, device);
            const Rows<SumRow<T>>& rows = table.rows();
            const Tensor partial = Tensor::empty(Shape{rows.chunks}, DType::f64, device);
            GRADUS_LAUNCH((squares_kernel<T>), device, grid_for(rows.chunks, 1), threads, 0, rows,
                          partial.data<double>());
            GRADUS_LAUNCH((row_totals_kernel<T>), device, grid_for(rows.count, threads / 32), threads, 0, rows,
                          partial.data<double>(), sums);
        });
    }
    GRADUS_LAUNCH(total_kernel, device, 1, threads, 0, sums, std::int64_t(xs.size()));
    return result;
}

void scale_in_place(const Tensor& x, double factor) {
    visit_floating("scale_in_place", x, [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((scale_kernel<T>), x.device(), grid_for(x.numel(), 256), 256, 0, x.data<T>(), Wide<T>(factor),
                      x.numel());
    });
    x.storage().bump_version();
}

void clamp_in_place(const Tensor& x, double low, double high) {
    visit_floating("clamp_in_place", x, [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((clamp_kernel<T>), x.device(), grid_for(x.numel(), 256), 256, 0, x.data<T>(), Wide<T>(low),
                      Wide<T>(high), x.numel());
    });
    x.storage().bump_version();
}

}  // namespace gradus::kernels::cuda
