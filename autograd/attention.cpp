// Scaled dot-product attention and its rule: one fused kernel each way.
#include <array>
#include <cmath>

#include "gradus/autograd/rules.h"
#include "gradus/kernels/attention.h"

namespace gradus {
namespace {

constexpr const char* op = "scaled_dot_product_attention";

/// x itself where its last axis lies densely, else a copy.
Tensor dense_rows(const Tensor& x) { return x.size(-1) == 1 || x.strides().back() == 1 ? x : contiguous(x); }

/// Memory (B, T, H, n) seen as (B, H, T, n), so that merging the heads is a view.
Tensor empty_heads(const Tensor& like, std::int64_t n) {
    const Tensor memory = Tensor::empty({like.size(0), like.size(2), like.size(1), n}, like.dtype(), like.device());
    return memory.with_layout(memory.layout().permute({0, 2, 1, 3}));
}

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
    for (const auto& [name, x] : {NamedTensor{"q", q}, NamedTensor{"k", k}, NamedTensor{"v", v}}) {
        check_floating(op, name, x);
        check(x.rank() == 4, op, ": ", name, " must have the axes (batch, heads, positions, features): got ",
              x.shape());
    }
    check(q.size(0) == k.size(0) && q.size(0) == v.size(0) && q.size(1) == k.size(1) && q.size(1) == v.size(1), op,
          ": batch and heads differ: q ", q.shape(), ", k ", k.shape(), ", v ", v.shape());
    check(q.size(3) == k.size(3), op, ": q and k have different feature sizes: ", q.shape(), " and ", k.shape());
    check(k.size(2) == v.size(2), op, ": k and v have different numbers of positions: ", k.shape(), " and ", v.shape());
}

Tensor stretched_mask(const char* name, const Tensor& mask, const Shape& scores) {
    check(mask.rank() <= 4 && broadcast(op, mask.shape(), scores) == scores, op, ": ", name, " of shape ", mask.shape(),
          " does not broadcast to the scores ", scores);
    return mask.with_layout(mask.layout().expand(op, scores));
}

/// The kernel's arguments but for q, k and v; draws the dropout's numbers.
kernels::Attention arguments(const Tensor& q, const Tensor& k, const AttentionOptions& options) {
    const Shape scores{q.size(0), q.size(1), q.size(2), k.size(2)};
    kernels::Attention a;
    if (options.mask.defined()) {
        check(options.mask.dtype() == DType::boolean, op, ": mask must be bool (true = may be seen): got ",
              options.mask.dtype(), ", pass numbers to be added to the scores as additive_mask");
        a.mask = stretched_mask("mask", options.mask, scores);
    }
    if (const Tensor& lengths = options.key_lengths; lengths.defined()) {
        check(lengths.shape() == Shape{q.size(0)} && !is_floating(lengths.dtype()) && lengths.dtype() != DType::boolean,
              op, ": key_lengths must be one integer a batch item, ", Shape{q.size(0)}, ": got ", lengths.dtype(), " ",
              lengths.shape());
        const NoGrad scope;
        const Tensor keys = arange(0, double(k.size(2)), 1, DType::i64, q.device());
        const Tensor visible =
            less(reshape(keys, {1, 1, 1, k.size(2)}), reshape(cast(lengths, DType::i64), {q.size(0), 1, 1, 1}));
        a.mask = stretched_mask("key_lengths", options.mask.defined() ? logical_and(options.mask, visible) : visible,
                                scores);
    }
    if (options.additive_mask.defined()) {
        check_floating(op, "additive_mask", options.additive_mask);
        check(!recording(options.additive_mask), op,
              ": additive_mask has no gradient here: detach it, or compose attention from matmul and softmax");
        a.additive = options.additive_mask.without_past();
        if (a.additive.dtype() != q.dtype()) a.additive = cast(a.additive, q.dtype());
        a.additive = stretched_mask("additive_mask", a.additive, scores);
    }
    check(options.dropout >= 0 && options.dropout <= 1, op, ": the dropout probability must lie in [0, 1]: got ",
          options.dropout);
    a.causal = options.causal;
    a.scale = options.scale != 0 ? options.scale : 1 / std::sqrt(double(q.size(3)));
    a.dropout = options.dropout;
    if (a.dropout > 0 && a.dropout < 1) {
        a.draw = (options.generator ? *options.generator : default_generator()).next();
        check(a.draw.samples == 0 || q.size(0) % a.draw.samples == 0, op, ": a batch of ", q.size(0),
              " does not fall into ", a.draw.samples, " equal samples, as the open step scope wants");
    }
    return a;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
    check_devices(op, {{"q", q},
                       {"k", k},
                       {"v", v},
                       {"mask", options.mask},
                       {"additive_mask", options.additive_mask},
                       {"key_lengths", options.key_lengths}});
    check_shapes(q, k, v);
    DType dtype = promote(promote(q.dtype(), k.dtype()), v.dtype());
    const DType result = dtype;
    const bool as_stored = dtype == DType::bf16 && q.device().kind == Device::cuda;  // computes in f32 all the same
    if (dtype == DType::f16 || (dtype == DType::bf16 && !as_stored)) dtype = DType::f32;
    if (q.dtype() != dtype || k.dtype() != dtype || v.dtype() != dtype) {
        const Tensor y = scaled_dot_product_attention(cast(q, dtype), cast(k, dtype), cast(v, dtype), options);
        return result == dtype ? y : cast(y, result);
    }
    const Tensor query = dense_rows(q), key = dense_rows(k), value = dense_rows(v);
    kernels::Attention a = arguments(query, key, options);
    a.q = query.without_past(), a.k = key.without_past(), a.v = value.without_past();
    const Tensor y = empty_heads(query, value.size(3));
    const Tensor lse =
        Tensor::empty({query.size(0), query.size(1), query.size(2)}, as_stored ? DType::f32 : dtype, query.device());
    kernels::attention(a, y, lse);
    // The rule keeps what the kernel read, with versions; their pasts are not needed, for it is first-order.
    const std::array<Saved, 5> kept{saved(a.q), saved(a.k), saved(a.v), saved(a.mask), saved(a.additive)};
    return record_joint(op, y, {query, key, value}, [a, kept, y = saved(y), lse](std::span<const Tensor> gradients) {
        first_order_only(op);
        for (const Saved& operand : kept) operand();  // throws where one was modified meanwhile
        const Tensor gq = empty_heads(a.q, a.q.size(3)), gk = empty_heads(a.k, a.k.size(3));
        const Tensor gv = empty_heads(a.v, a.v.size(3));
        kernels::attention_backward(a, y(), lse, dense_rows(gradients[0]), gq, gk, gv);
        return std::vector<Tensor>{gq, gk, gv};
    });
}

}  // namespace gradus
