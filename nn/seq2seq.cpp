#include "gradus/nn/seq2seq.h"

#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/nn/init.h"

namespace gradus {
namespace {

TransformerLayerOptions layer_options(const TransformerOptions& o) {
    return {o.d_model, o.heads, o.hidden, o.dropout, o.activation, o.pre_norm};
}

const TransformerOptions& checked(const TransformerOptions& o) {
    check(o.source_vocabulary > 0 && o.target_vocabulary > 0, "Transformer: both vocabularies need a size: got ",
          o.source_vocabulary, " and ", o.target_vocabulary);
    check(o.pad >= 0 && o.pad < o.source_vocabulary && o.pad < o.target_vocabulary, "Transformer: pad ", o.pad,
          " is not an id of both vocabularies");
    check(o.encoder_layers >= 0 && o.decoder_layers >= 0, "Transformer: layer counts must not be negative");
    check(!o.tie_embeddings || o.source_vocabulary == o.target_vocabulary,
          "Transformer: tie_embeddings needs vocabularies of one size: got ", o.source_vocabulary, " and ",
          o.target_vocabulary);
    return o;
}

}  // namespace

void DecoderCache::reorder(const Tensor& index, bool same_source) {
    const auto take = [&](Tensor& x) {
        if (x.defined()) x = index_select(x, 0, index);
    };
    for (DecoderLayerCache& layer : layers) {
        take(layer.self.key);
        take(layer.self.value);
        if (same_source) continue;
        take(layer.cross.key);
        take(layer.cross.value);
    }
    if (!same_source) take(memory_mask);
}

Transformer::Transformer(const TransformerOptions& o, Generator& rng, Device device)
    : source_embedding(checked(o).source_vocabulary, o.d_model, rng, o.pad, device),
      target_embedding(o.target_vocabulary, o.d_model, rng, o.pad, device),
      source_positions(o.positions, o.longest, o.d_model, rng, 1, device),
      target_positions(o.positions, o.longest, o.d_model, rng, 1, device),
      encoder(o.encoder_layers, layer_options(o), o.final_norm, rng, device),
      decoder(o.decoder_layers, layer_options(o), o.final_norm, rng, device),
      output(o.d_model, o.target_vocabulary, rng, device),
      drop(o.dropout),
      options_(o) {
    if (o.tie_embeddings) source_embedding.weight = target_embedding.weight;
    reset(rng);
    if (o.tie_output) output.weight = target_embedding.weight;
}

void Transformer::reset(Generator& rng) {
    for (const auto& [name, p] : named_parameters()) {
        if (p.rank() == 2)
            init::xavier_uniform(p, rng);
        else if (name.ends_with("bias"))
            init::zeros(p);
    }
    const double deviation = 1 / std::sqrt(double(options_.d_model));
    source_embedding.reset(deviation, rng);
    if (!options_.tie_embeddings) target_embedding.reset(deviation, rng);
    for (const Positions* positions : {&source_positions, &target_positions})
        if (positions->weight.defined()) init::normal(positions->weight, 0, deviation, rng);
}

void Transformer::visit(Visitor& v) {
    v("source_embedding", source_embedding);
    v("source_positions", source_positions);
    v("encoder", encoder);
    v("target_embedding", target_embedding);
    v("target_positions", target_positions);
    v("decoder", decoder);
    v("output", output);
    v("drop", drop);
}

Tensor Transformer::padding_mask(const Tensor& ids) const {
    return reshape(not_equal(ids, double(options_.pad)), {ids.size(0), 1, 1, ids.size(1)});
}

Tensor Transformer::embed(const Tensor& ids, const Embedding& table, const Positions& positions,
                          std::int64_t first) const {
    check(ids.rank() == 2, "Transformer: ids must be (B, length): got ", ids.shape());
    const Tensor places = positions(ids.size(1), first);  // (T, d)
    return drop(table(ids) * std::sqrt(double(options_.d_model)) + places);
}

Memory Transformer::encode(const Tensor& source) const {
    const ModuleFrame frame(*this);
    const Tensor x = embed(source, source_embedding, source_positions, 0);
    const Tensor mask = padding_mask(source);
    return {encoder(x, mask), mask};
}

Tensor Transformer::decode(const Tensor& target, const Memory& memory, Tensor* cross_weights) const {
    const ModuleFrame frame(*this);
    const Tensor y = embed(target, target_embedding, target_positions, 0);
    return output(decoder(y, memory.states, padding_mask(target), memory.mask, cross_weights));
}

Tensor Transformer::forward(const Tensor& source, const Tensor& target) const { return decode(target, encode(source)); }

DecoderCache Transformer::start(const Memory& memory) const {
    const ModuleFrame frame(*this);
    return {decoder.start(memory.states), memory.mask, 0};
}

Tensor Transformer::decode_step(const Tensor& ids, DecoderCache& cache) const {
    const ModuleFrame frame(*this);
    const Tensor y = embed(ids, target_embedding, target_positions, cache.length);
    const Tensor logits = output(decoder.step(y, cache.layers, cache.memory_mask));
    cache.length += ids.size(1);
    return logits;
}

}  // namespace gradus
