// Fused attention: scores, masks, softmax, dropout and values in blocks that stay in the cache; nothing of size T x S
// is kept.
//
// Dao, Fu, Ermon, Rudra, Ré: "FlashAttention" (NeurIPS 2022), here with keys along rows and queries along lanes, so
// that a row's maximum and sum need no work across lanes.
#pragma once

#include "gradus/core/random.h"
#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

/// q (B, H, T, D), k (B, H, S, D), v (B, H, S, E) of one dtype, f32 or f64, on a card also bf16, any strides as long as
/// the last axis lies densely.
struct Attention {
    Tensor q, k, v;
    Tensor mask;      ///< bool of shape (B, H, T, S), any strides, true = may be seen; or undefined
    Tensor additive;  ///< of q's dtype and shape (B, H, T, S), any strides; or undefined
    bool causal = false;
    double scale = 1;
    double dropout = 0;
    Draw draw;  ///< of the dropout; its samples divide B

    template <class F>
    void each_tensor(F&& f) const {
        f(q), f(k), f(v), f(mask), f(additive);
    }
};

namespace cpu {
void attention(const Attention& a, const Tensor& y, const Tensor& lse);
void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& g, const Tensor& gq,
                        const Tensor& gk, const Tensor& gv);
}  // namespace cpu
namespace cuda {
decltype(cpu::attention) attention;
decltype(cpu::attention_backward) attention_backward;
}  // namespace cuda

/// y (B, H, T, E), the last axis dense, and lse (B, H, T) row-major: log Σ e^score of each query, +inf where it sees
/// nothing.
inline void attention(const Attention& a, const Tensor& y, const Tensor& lse) {
    GRADUS_DISPATCH("scaled_dot_product_attention", a.q.device(), attention, a, y, lse);
}
/// The gradients of q, k, v from g = dL/dy; all with a dense last axis.
inline void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& g,
                               const Tensor& gq, const Tensor& gk, const Tensor& gv) {
    GRADUS_DISPATCH("scaled_dot_product_attention", a.q.device(), attention_backward, a, y, lse, g, gq, gk, gv);
}

}  // namespace gradus::kernels
