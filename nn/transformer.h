// The Transformer: encoder and decoder layers, their stacks, and the sequence-to-sequence model made of them.
// Vaswani et al.: "Attention is all you need" (NeurIPS 2017).
#pragma once

#include "gradus/nn/attention.h"
#include "gradus/nn/embedding.h"
#include "gradus/nn/norm.h"
#include "gradus/nn/positions.h"

namespace gradus {

enum class Activation { relu, gelu };

/// What a layer is built from.
struct TransformerLayerOptions {
    std::int64_t d_model = 512, heads = 8, hidden = 2048;
    double dropout = 0.1;  ///< on attention weights, inside the feed-forward, and on what each sublayer adds
    Activation activation = Activation::relu;
    bool pre_norm = false;  ///< x + f(norm(x)); else norm(x + f(x))
};

/// fc2(dropout(activation(fc1(x)))): (…, d) -> (…, d).
class FeedForward final : public Layer<FeedForward> {
  public:
    FeedForward(std::int64_t d_model, std::int64_t hidden, double dropout, Activation activation, Generator& rng,
                Device device = {});
    Tensor forward(const Tensor& x) const {
        return fc2(drop(activation_ == Activation::relu ? linear_relu(x, fc1.weight, fc1.bias) : gelu(fc1(x))));
    }
    void visit(Visitor& v) override {
        v("fc1", fc1);
        v("fc2", fc2);
        v("drop", drop);
    }
    Linear fc1, fc2;
    Dropout drop;

  private:
    Activation activation_;
};

/// Self-attention and feed-forward, each with dropout, a residual and a layer norm: (B, S, d) -> (B, S, d).
class TransformerEncoderLayer final : public Layer<TransformerEncoderLayer> {
  public:
    TransformerEncoderLayer(const TransformerLayerOptions& options, Generator& rng, Device device = {});
    /// mask as in AttentionCall: true = may be seen; a padding mask is (B, 1, 1, S).
    Tensor forward(const Tensor& x, const Tensor& mask = {}) const;
    void visit(Visitor& v) override;
    MultiHeadAttention self_attention;
    FeedForward feed_forward;
    LayerNorm norm1, norm2;
    Dropout drop;

  private:
    bool pre_norm_;
};

/// What a decoder layer keeps between steps of incremental decoding.
struct DecoderLayerCache {
    KeyValue self;   ///< (B, H, tokens so far, d/H); undefined before the first
    KeyValue cross;  ///< (B, H, S, d/H), computed once
};

/// Causal self-attention, attention to the encoder's result, feed-forward: (B, T, d) -> (B, T, d).
class TransformerDecoderLayer final : public Layer<TransformerDecoderLayer> {
  public:
    TransformerDecoderLayer(const TransformerLayerOptions& options, Generator& rng, Device device = {});
    /// `cross_weights`, where given, receives the weights (B, H, T, S) with which targets looked at the memory.
    Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& mask = {}, const Tensor& memory_mask = {},
                   Tensor* cross_weights = nullptr) const;
    DecoderLayerCache start(const Tensor& memory) const { return {{}, cross_attention.project(memory, memory)}; }
    /// The next tokens' x (B, T, d) after those in the cache, which they join.
    Tensor step(const Tensor& x, DecoderLayerCache& cache, const Tensor& memory_mask = {}) const;
    void visit(Visitor& v) override;
    MultiHeadAttention self_attention, cross_attention;
    FeedForward feed_forward;
    LayerNorm norm1, norm2, norm3;
    Dropout drop;

  private:
    template <class Self>
    Tensor run(Tensor x, Self&& self, const KeyValue& memory, const Tensor& memory_mask, Tensor* cross_weights) const;
    bool pre_norm_;
};

/// A stack of layers, with a layer norm at the end where `final_norm`.
class Encoder final : public Layer<Encoder> {
  public:
    Encoder(int layers, const TransformerLayerOptions& options, bool final_norm, Generator& rng, Device device = {});
    Tensor forward(const Tensor& x, const Tensor& mask = {}) const;
    void visit(Visitor& v) override;
    std::vector<TransformerEncoderLayer> layers;
    std::optional<LayerNorm> norm;
};

class Decoder final : public Layer<Decoder> {
  public:
    Decoder(int layers, const TransformerLayerOptions& options, bool final_norm, Generator& rng, Device device = {});
    /// `cross_weights`, where given, receives those of the last layer.
    Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& mask = {}, const Tensor& memory_mask = {},
                   Tensor* cross_weights = nullptr) const;
    std::vector<DecoderLayerCache> start(const Tensor& memory) const;
    Tensor step(const Tensor& x, std::vector<DecoderLayerCache>& cache, const Tensor& memory_mask = {}) const;
    void visit(Visitor& v) override;
    std::vector<TransformerDecoderLayer> layers;
    std::optional<LayerNorm> norm;
};

}  // namespace gradus
