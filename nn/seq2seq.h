// The sequence-to-sequence Transformer: token ids in, logits of the next token out, and the cache for decoding step by
// step.
#pragma once

#include "gradus/nn/transformer.h"

namespace gradus {

struct TransformerOptions {
    std::int64_t source_vocabulary = 0, target_vocabulary = 0;
    std::int64_t d_model = 512, heads = 8, hidden = 2048;
    int encoder_layers = 6, decoder_layers = 6;
    double dropout =
        0.1;  ///< on embeddings, attention weights, inside the feed-forward, and on what each sublayer adds
    Activation activation = Activation::relu;
    bool pre_norm = false;    ///< x + f(norm(x)), with a norm after each stack; else norm(x + f(x))
    bool final_norm = false;  ///< a norm after each stack with post-norm too
    PositionKind positions = PositionKind::learned;
    std::int64_t longest = 256;   ///< places there are positions for
    std::int64_t pad = 0;         ///< the id that fills up short sequences, in both vocabularies
    bool tie_output = false;      ///< the output projection is the target embedding's table
    bool tie_embeddings = false;  ///< source and target share one table; the vocabularies must be equal
};

/// The encoder's result.
struct Memory {
    Tensor states;  ///< (B, S, d)
    Tensor mask;    ///< (B, 1, 1, S), true where the source is a token
};

/// The state of decoding so far, for a batch of hypotheses.
struct DecoderCache {
    std::vector<DecoderLayerCache> layers;
    Tensor memory_mask;       ///< (B, 1, 1, S)
    std::int64_t length = 0;  ///< tokens so far
    /// Row i becomes what row index[i] was (index 1-d, any length): for beam search, and to repeat or drop sentences.
    /// `same_source`: every new row keeps its row's source sentence, so that what depends on the source alone stays.
    void reorder(const Tensor& index, bool same_source = false);
};

/// logits = output(decoder(drop(√d · E_t[target] + P_t), encoder(drop(√d · E_s[source] + P_s)))). Padding masks are
/// built where the ids are. Matrices start xavier-uniform, biases 0, embeddings and learned positions from N(0, 1/d).
class Transformer final : public Layer<Transformer> {
  public:
    Transformer(const TransformerOptions& options, Generator& rng, Device device = {});

    /// source (B, S), target (B, T) ids -> (B, T, target vocabulary); position t sees targets 0 … t.
    Tensor forward(const Tensor& source, const Tensor& target) const;
    Memory encode(const Tensor& source) const;
    /// `cross_weights`, where given, receives the last layer's attention (B, H, T, S) from target to source.
    Tensor decode(const Tensor& target, const Memory& memory, Tensor* cross_weights = nullptr) const;

    DecoderCache start(const Memory& memory) const;
    /// The next token of each row (B, 1), or several (B, n), never padding -> logits (B, n, target vocabulary); the
    /// cache grows.
    Tensor decode_step(const Tensor& ids, DecoderCache& cache) const;

    void visit(Visitor& v) override;
    const TransformerOptions& options() const { return options_; }

    Embedding source_embedding, target_embedding;
    Positions source_positions, target_positions;
    Encoder encoder;
    Decoder decoder;
    Linear output;
    Dropout drop;

  private:
    Tensor embed(const Tensor& ids, const Embedding& table, const Positions& positions, std::int64_t first) const;
    Tensor padding_mask(const Tensor& ids) const;
    void reset(Generator& rng);
    TransformerOptions options_;
};

}  // namespace gradus
