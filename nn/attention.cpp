#include "gradus/nn/attention.h"

#include <cmath>
#include <limits>

namespace gradus {
namespace {

std::int64_t checked_heads(std::int64_t d_model, std::int64_t heads) {
    check(heads > 0 && d_model % heads == 0, "MultiHeadAttention: d_model ", d_model, " is not a multiple of ", heads,
          " heads: choose sizes that divide");
    return heads;
}

void check_mask(const char* name, const Tensor& mask) {
    check(!mask.defined() || mask.rank() == 2 || mask.rank() == 4, "MultiHeadAttention: ", name,
          " must be (T, S) or broadcast to (B, H, T, S): got ", mask.defined() ? mask.shape() : Shape(),
          ": add the missing axes with unsqueeze");
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(std::int64_t d_model, std::int64_t heads, double dropout, Generator& rng,
                                       Device device)
    : fc_q(d_model, d_model, rng, device),
      fc_k(d_model, d_model, rng, device),
      fc_v(d_model, d_model, rng, device),
      fc_o(d_model, d_model, rng, device),
      heads_(checked_heads(d_model, heads)),
      head_size_(d_model / heads),
      dropout_(check_probability("MultiHeadAttention", dropout)) {}

Tensor MultiHeadAttention::split(const Tensor& x) const {
    return permute(reshape(x, {x.size(0), x.size(1), heads_, head_size_}), {0, 2, 1, 3});  // (B, H, T, d/H)
}

KeyValue MultiHeadAttention::project(const Tensor& key, const Tensor& value) const {
    const ModuleFrame frame(*this);
    check(key.rank() == 3 && value.rank() == 3 && key.size(0) == value.size(0) && key.size(1) == value.size(1),
          "MultiHeadAttention: key and value must be (B, S, d) with the same B and S: got ", key.shape(), " and ",
          value.shape());
    return {split(fc_k(key)), split(fc_v(value))};
}

AttentionResult MultiHeadAttention::attend(const Tensor& query, const KeyValue& seen, const AttentionCall& call) const {
    const ModuleFrame frame(*this);
    check(query.rank() == 3, "MultiHeadAttention: query must be (B, T, d): got ", query.shape());
    check_mask("mask", call.mask);
    check_mask("additive_mask", call.additive_mask);
    check(!call.mask.defined() || call.mask.dtype() == DType::boolean,
          "MultiHeadAttention: mask must be bool (true = may be seen): got ",
          call.mask.defined() ? call.mask.dtype() : DType::boolean,
          ": compare with 0, or pass numbers to add as additive_mask");
    check(!call.additive_mask.defined() || is_floating(call.additive_mask.dtype()),
          "MultiHeadAttention: additive_mask must be floating: pass a bool mask as mask");
    const double rate = training() ? dropout_ : 0;
    const Tensor q = split(fc_q(query));  // (B, H, T, d/H)
    Tensor x, weights;
    if (!call.need_weights) {
        AttentionOptions options;
        options.mask = call.mask;
        options.additive_mask = call.additive_mask;
        options.causal = call.causal;
        options.dropout = rate;
        x = scaled_dot_product_attention(q, seen.key, seen.value, options);
    } else {
        Tensor scores = matmul(q, transpose(seen.key)) * (1 / std::sqrt(double(head_size_)));  // (B, H, T, S)
        Tensor visible = call.mask;
        const auto restrict_to = [&visible](const Tensor& more) {
            visible = visible.defined() ? logical_and(visible, more) : more;
        };
        if (call.additive_mask.defined()) {
            scores = scores + call.additive_mask;
            restrict_to(not_equal(call.additive_mask, -std::numeric_limits<double>::infinity()));
        }
        if (call.causal) {
            const std::int64_t t = scores.size(2), s = scores.size(3);
            // Comparing numbers instead of tril on bool keeps the mask where the data is, for any T and S.
            const Tensor row = reshape(arange(t, DType::i64, scores.device()), {t, 1});
            const Tensor column = reshape(arange(s, DType::i64, scores.device()), {1, s});
            restrict_to(less_equal(column, row + double(s - t)));
        }
        weights = visible.defined() ? masked_softmax(scores, visible, -1) : softmax(scores, -1);
        x = matmul(rate > 0 ? dropout(weights, rate) : weights, seen.value);
    }
    const std::int64_t b = query.size(0), t = query.size(1);
    return {fc_o(reshape(permute(x, {0, 2, 1, 3}), {b, t, heads_ * head_size_})), weights};
}

AttentionResult MultiHeadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const AttentionCall& call) const {
    return attend(query, project(key, value), call);
}

}  // namespace gradus
