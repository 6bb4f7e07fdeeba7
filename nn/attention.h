// Multi-head attention: every query looks at all keys that it may see and takes the weighted sum of their values.
#pragma once

#include "gradus/nn/dropout.h"
#include "gradus/nn/linear.h"

namespace gradus {

struct AttentionCall {
    Tensor mask;                ///< bool, true = may be seen: (T, S), or 4-d that broadcasts to (B, H, T, S)
    Tensor additive_mask;       ///< floating, added to the scores (0 and -inf); shapes likewise
    bool causal = false;        ///< query t sees keys 0 … t + S - T
    bool need_weights = false;  ///< return the weights; composed from several ops instead of the fused one
};
struct AttentionResult {
    Tensor output;   ///< (B, T, d)
    Tensor weights;  ///< (B, H, T, S), those before dropout; undefined unless asked for
};
/// Keys and values split into heads, (B, H, S, d/H) each: what incremental decoding keeps.
struct KeyValue {
    Tensor key, value;
};

/// fc_o(concat of softmax(q kᵀ / √(d/H)) v over the heads) with q, k, v the projections fc_q, fc_k, fc_v of the inputs.
/// In training the weights are dropped with probability `dropout`. A query that sees nothing gets fc_o of zeros.
/// Vaswani et al. (2017), 3.2.
class MultiHeadAttention final : public Layer<MultiHeadAttention> {
  public:
    /// d_model must be a multiple of heads.
    MultiHeadAttention(std::int64_t d_model, std::int64_t heads, double dropout, Generator& rng, Device device = {});
    /// query (B, T, d), key and value (B, S, d).
    AttentionResult forward(const Tensor& query, const Tensor& key, const Tensor& value,
                            const AttentionCall& call = {}) const;

    /// The two halves of forward, for callers that keep keys and values.
    KeyValue project(const Tensor& key, const Tensor& value) const;
    AttentionResult attend(const Tensor& query, const KeyValue& seen, const AttentionCall& call = {}) const;

    void visit(Visitor& v) override {
        v("fc_q", fc_q);
        v("fc_k", fc_k);
        v("fc_v", fc_v);
        v("fc_o", fc_o);
    }
    std::int64_t heads() const { return heads_; }
    Linear fc_q, fc_k, fc_v, fc_o;

  private:
    Tensor split(const Tensor& x) const;
    std::int64_t heads_, head_size_;
    double dropout_;
};

}  // namespace gradus
