#include "gradus/nn/transformer.h"

namespace gradus {
namespace {

/// A residual sublayer: norm(x + drop(f(x))), or x + drop(f(norm(x))).
template <class F>
Tensor sublayer(const Tensor& x, const LayerNorm& norm, const Dropout& drop, bool pre_norm, F&& f) {
    if (pre_norm) return x + drop(f(norm(x)));
    const Tensor y = f(x);
    const ModuleFrame frame(norm);
    return dropout_add_layer_norm(y, x, norm.weight, norm.bias, drop.p(), norm.eps(), drop.training());
}

std::optional<LayerNorm> last_norm(bool wanted, std::int64_t width, Device device) {
    std::optional<LayerNorm> norm;
    if (wanted) norm.emplace(width, 1e-5, device);
    return norm;
}

// A vector of layers grows by moving them: a copy would be refused.
static_assert(std::is_nothrow_move_constructible_v<TransformerEncoderLayer>);
static_assert(std::is_nothrow_move_constructible_v<TransformerDecoderLayer>);

}  // namespace

FeedForward::FeedForward(std::int64_t d_model, std::int64_t hidden, double dropout, Activation activation,
                         Generator& rng, Device device)
    : fc1(d_model, hidden, rng, device), fc2(hidden, d_model, rng, device), drop(dropout), activation_(activation) {}

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerLayerOptions& o, Generator& rng, Device device)
    : self_attention(o.d_model, o.heads, o.dropout, rng, device),
      feed_forward(o.d_model, o.hidden, o.dropout, o.activation, rng, device),
      norm1(o.d_model, 1e-5, device),
      norm2(o.d_model, 1e-5, device),
      drop(o.dropout),
      pre_norm_(o.pre_norm) {}

void TransformerEncoderLayer::visit(Visitor& v) {
    v("self_attention", self_attention);
    v("norm1", norm1);
    v("feed_forward", feed_forward);
    v("norm2", norm2);
    v("drop", drop);
}

Tensor TransformerEncoderLayer::forward(const Tensor& x, const Tensor& mask) const {
    AttentionCall call;
    call.mask = mask;
    const Tensor y =
        sublayer(x, norm1, drop, pre_norm_, [&](const Tensor& h) { return self_attention(h, h, h, call).output; });
    return sublayer(y, norm2, drop, pre_norm_, feed_forward);
}

TransformerDecoderLayer::TransformerDecoderLayer(const TransformerLayerOptions& o, Generator& rng, Device device)
    : self_attention(o.d_model, o.heads, o.dropout, rng, device),
      cross_attention(o.d_model, o.heads, o.dropout, rng, device),
      feed_forward(o.d_model, o.hidden, o.dropout, o.activation, rng, device),
      norm1(o.d_model, 1e-5, device),
      norm2(o.d_model, 1e-5, device),
      norm3(o.d_model, 1e-5, device),
      drop(o.dropout),
      pre_norm_(o.pre_norm) {}

void TransformerDecoderLayer::visit(Visitor& v) {
    v("self_attention", self_attention);
    v("norm1", norm1);
    v("cross_attention", cross_attention);
    v("norm2", norm2);
    v("feed_forward", feed_forward);
    v("norm3", norm3);
    v("drop", drop);
}

template <class Self>
Tensor TransformerDecoderLayer::run(Tensor x, Self&& self, const KeyValue& memory, const Tensor& memory_mask,
                                    Tensor* cross_weights) const {
    x = sublayer(x, norm1, drop, pre_norm_, self);
    AttentionCall call;
    call.mask = memory_mask;
    call.need_weights = cross_weights != nullptr;
    x = sublayer(x, norm2, drop, pre_norm_, [&](const Tensor& h) {
        const AttentionResult seen = cross_attention.attend(h, memory, call);
        if (cross_weights) *cross_weights = seen.weights;
        return seen.output;
    });
    return sublayer(x, norm3, drop, pre_norm_, feed_forward);
}

Tensor TransformerDecoderLayer::forward(const Tensor& x, const Tensor& memory, const Tensor& mask,
                                        const Tensor& memory_mask, Tensor* cross_weights) const {
    AttentionCall call;
    call.mask = mask;
    call.causal = true;
    return run(
        x, [&](const Tensor& h) { return self_attention(h, h, h, call).output; },
        cross_attention.project(memory, memory), memory_mask, cross_weights);
}

Tensor TransformerDecoderLayer::step(const Tensor& x, DecoderLayerCache& cache, const Tensor& memory_mask) const {
    const ModuleFrame frame(*this);
    AttentionCall call;
    call.causal = true;  // matters when several tokens come at once
    const auto self = [&](const Tensor& h) {
        KeyValue next = self_attention.project(h, h);
        if (cache.self.key.defined())
            next = {cat({cache.self.key, next.key}, 2), cat({cache.self.value, next.value}, 2)};
        cache.self = std::move(next);
        return self_attention.attend(h, cache.self, call).output;
    };
    return run(x, self, cache.cross, memory_mask, nullptr);
}

Encoder::Encoder(int count, const TransformerLayerOptions& options, bool final_norm, Generator& rng, Device device)
    : norm(last_norm(final_norm || options.pre_norm, options.d_model, device)) {
    for (int i = 0; i < count; ++i) layers.emplace_back(options, rng, device);
}

void Encoder::visit(Visitor& v) {
    v("layers", layers);
    v("norm", norm);
}

Tensor Encoder::forward(const Tensor& x, const Tensor& mask) const {
    Tensor y = x;
    for (const auto& layer : layers) y = layer(y, mask);
    return norm ? (*norm)(y) : y;
}

Decoder::Decoder(int count, const TransformerLayerOptions& options, bool final_norm, Generator& rng, Device device)
    : norm(last_norm(final_norm || options.pre_norm, options.d_model, device)) {
    for (int i = 0; i < count; ++i) layers.emplace_back(options, rng, device);
}

void Decoder::visit(Visitor& v) {
    v("layers", layers);
    v("norm", norm);
}

Tensor Decoder::forward(const Tensor& x, const Tensor& memory, const Tensor& mask, const Tensor& memory_mask,
                        Tensor* cross_weights) const {
    Tensor y = x;
    for (std::size_t i = 0; i < layers.size(); ++i)
        y = layers[i](y, memory, mask, memory_mask, i + 1 == layers.size() ? cross_weights : nullptr);
    return norm ? (*norm)(y) : y;
}

std::vector<DecoderLayerCache> Decoder::start(const Tensor& memory) const {
    const ModuleFrame frame(*this);
    std::vector<DecoderLayerCache> cache;
    for (const auto& layer : layers) cache.push_back(layer.start(memory));
    return cache;
}

Tensor Decoder::step(const Tensor& x, std::vector<DecoderLayerCache>& cache, const Tensor& memory_mask) const {
    const ModuleFrame frame(*this);
    check(cache.size() == layers.size(), "Decoder: the cache has ", cache.size(), " layers, the decoder ",
          layers.size(), ": make it with start()");
    Tensor y = x;
    for (std::size_t i = 0; i < layers.size(); ++i) y = layers[i].step(y, cache[i], memory_mask);
    return norm ? (*norm)(y) : y;
}

}  // namespace gradus
