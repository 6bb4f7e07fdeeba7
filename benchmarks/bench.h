// A row of the benchmark table: what is timed, how much work it is, and what share of the machine's measured limits it
// reaches.
//
// Note [Shares]
// The limits are measured, not read from a data sheet: the peak is a loop of fused multiply-adds on registers, the
// bandwidth is the triad a = b + s c over arrays larger than the caches, counting what is read and written. Both run on
// as many threads as the row, right before and right after it, because a shared machine's clock drifts within seconds.
// Times are medians.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/parallel.h"

namespace gradus::bench {

/// Multiply-adds in registers on this many threads, f32: flops per second, about 3 ms of measuring.
double peak_flops(int threads);
/// a = b + s c over 3 x 64 MB: bytes per second, about 20 ms of measuring; up to 64 threads.
double triad_bandwidth(int threads);

/// What one call does. The share of the peak is printed for flops, that of the triad for bytes (of the tensors read and
/// written).
struct Work {
    double flops = 0, bytes = 0;
    bool f64 = false;  ///< half as many lanes, so half the peak
};

/// Times `call` after two untimed calls and sets the row's counters: threads, seconds (the median), flops, bytes,
/// share_of_peak, share_of_triad.
void measure(benchmark::State& state, const Work& work, const std::function<void()>& call);

/// Adds a row; `body` makes its tensors and ends in measure().
void add(const std::string& name, std::function<void(benchmark::State&)> body);

/// Uniform numbers in [-1, 1), the same in every run.
Tensor numbers(const Shape& shape, DType dtype = DType::f32);
/// Ids in [first, end), the same in every run.
Tensor ids(const Shape& shape, std::int64_t first, std::int64_t end);

/// What forward and backward of f take, the gradients of `xs` thrown away after each call.
std::function<void()> forward_backward(std::vector<Tensor> xs, std::function<Tensor()> f);

inline double bytes_of(const Tensor& x) { return double(x.numel()) * size_of(x.dtype()); }

}  // namespace gradus::bench
