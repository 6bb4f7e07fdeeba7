// The Transformer as a whole: masks, structure, gradients, incremental decoding, and that it learns.
#include <algorithm>
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/init.h"
#include "gradus/nn/optimizer.h"
#include "gradus/nn/seq2seq.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

const Device here{};
using Numbers = std::vector<double>;

Numbers values(const Tensor& x) { return x.to_vector<double>(); }

double difference(const Tensor& a, const Tensor& b) {
    REQUIRE(a.shape() == b.shape());
    const Numbers left = values(a), right = values(b);
    double most = 0;
    for (std::size_t i = 0; i < left.size(); ++i) most = std::max(most, std::abs(left[i] - right[i]));
    return most;
}

Tensor ids(const std::vector<std::int64_t>& values, std::int64_t rows) {
    return Tensor::from(values, {rows, std::int64_t(values.size()) / rows}, here);
}

TransformerOptions small_options() {
    TransformerOptions o;
    o.source_vocabulary = 13, o.target_vocabulary = 11;
    o.d_model = 16, o.heads = 4, o.hidden = 24;
    o.encoder_layers = 2, o.decoder_layers = 2;
    o.longest = 16;
    o.dropout = 0;
    return o;
}

/// Biases and norms away from their plain start, so that a forgotten one shows.
void shake(Module& model, Generator& rng) {
    for (const Tensor& p : model.parameters())
        copy_(p.without_past(), p.without_past() + normal(p.shape(), 0, 0.2, p.dtype(), here, &rng));
}

}  // namespace

TEST_CASE("BB-012 padding mask on the wrong axis", "[transformer]") {
    Generator rng(1);
    Transformer model(small_options(), rng);
    model.eval();
    const Tensor padded = ids({5, 7, 0, 0}, 1), plain = ids({5, 7}, 1);
    const Memory first = model.encode(padded);
    init::normal(select(model.source_embedding.weight.without_past(), 0, 0), 0, 3, rng);
    const Memory second = model.encode(padded), alone = model.encode(plain);
    CHECK(difference(slice(first.states, 1, 0, 2), slice(second.states, 1, 0, 2)) == 0);
    CHECK(difference(slice(first.states, 1, 2, 4), slice(second.states, 1, 2, 4)) >
          0.1);  // the pad rows themselves do change
    CHECK(difference(slice(first.states, 1, 0, 2), alone.states) < 1e-6);
    // The decoder must not look at source padding either.
    const Tensor target = ids({3, 4, 6}, 1);
    CHECK(difference(model.decode(target, first), model.decode(target, second)) == 0);
    CHECK(difference(model.decode(target, first), model.decode(target, alone)) < 1e-5);
}

TEST_CASE("a target position sees itself and what is before it, never what comes after", "[transformer]") {
    Generator rng(2);
    const Transformer model(small_options(), rng);
    const Tensor source = ids({5, 7, 9}, 1);
    const Tensor before = model(source, ids({3, 4, 5, 6}, 1)), after = model(source, ids({3, 4, 9, 6}, 1));
    CHECK(difference(slice(before, 1, 0, 2), slice(after, 1, 0, 2)) == 0);
    for (std::int64_t t = 2; t < 4; ++t) CHECK(difference(select(before, 1, t), select(after, 1, t)) > 1e-3);
}

TEST_CASE("a sentence's result does not depend on its neighbours or on the padding they cause", "[transformer]") {
    Generator rng(3);
    const Transformer model(small_options(), rng);
    const Tensor together = model(ids({5, 7, 0, 0, 8, 9, 10, 11}, 2), ids({3, 4, 0, 5, 6, 7}, 2));
    const Tensor alone = model(ids({5, 7}, 1), ids({3, 4}, 1));
    CHECK(difference(slice(slice(together, 0, 0, 1), 1, 0, 2), alone) < 1e-5);
}

TEST_CASE("layers are the paper's formulas, norm after or before", "[transformer]") {
    Generator rng(4);
    for (const bool pre_norm : {false, true}) {
        INFO("pre_norm " << pre_norm);
        TransformerLayerOptions o{8, 2, 12, 0, Activation::relu, pre_norm};
        Encoder encoder(1, o, false, rng);
        Decoder decoder(1, o, false, rng);
        shake(encoder, rng);
        shake(decoder, rng);
        const Tensor x = normal({2, 3, 8}, 0, 1, DType::f32, here, &rng),
                     y = normal({2, 4, 8}, 0, 1, DType::f32, here, &rng);
        const auto feed = [](const FeedForward& f, const Tensor& h) {
            return linear(relu(linear(h, f.fc1.weight, f.fc1.bias)), f.fc2.weight, f.fc2.bias);
        };
        const auto norm = [](const LayerNorm& n, const Tensor& h) { return layer_norm(h, n.weight, n.bias, 1e-5); };
        const auto residual = [&](const LayerNorm& n, const Tensor& h, const auto& f) {
            return pre_norm ? h + f(norm(n, h)) : norm(n, h + f(h));
        };
        AttentionCall causal;
        causal.causal = true;
        const auto& e = encoder.layers[0];
        Tensor a = residual(e.norm1, x, [&](const Tensor& h) { return e.self_attention(h, h, h).output; });
        a = residual(e.norm2, a, [&](const Tensor& h) { return feed(e.feed_forward, h); });
        if (pre_norm) a = norm(*encoder.norm, a);
        CHECK(encoder.norm.has_value() == pre_norm);
        CHECK(difference(encoder(x), a) < 1e-5);

        const auto& d = decoder.layers[0];
        Tensor b = residual(d.norm1, y, [&](const Tensor& h) { return d.self_attention(h, h, h, causal).output; });
        b = residual(d.norm2, b, [&](const Tensor& h) { return d.cross_attention(h, x, x).output; });
        b = residual(d.norm3, b, [&](const Tensor& h) { return feed(d.feed_forward, h); });
        if (pre_norm) b = norm(*decoder.norm, b);
        CHECK(difference(decoder(y, x), b) < 1e-5);
    }
}

TEST_CASE("the translation model has the peer's parameters and start", "[transformer]") {
    Generator rng(5);
    TransformerOptions o;
    o.source_vocabulary = o.target_vocabulary = 1000;
    o.d_model = 256, o.heads = 8, o.hidden = 512, o.encoder_layers = o.decoder_layers = 3;
    Transformer model(o, rng);
    const std::int64_t d = 256, h = 512, attention = 4 * (d * d + d), feed = d * h + h + h * d + d, norm = 2 * d;
    CHECK(model.parameter_count() == 2 * 1000 * d + 2 * 256 * d + 3 * (attention + feed + 2 * norm) +
                                         3 * (2 * attention + feed + 3 * norm) + d * 1000 + 1000);
    const auto deviation = [](const Tensor& x) {
        double squares = 0;
        for (const double v : values(x)) squares += v * v;
        return std::sqrt(squares / double(x.numel()));
    };
    CHECK(deviation(model.source_embedding.weight) == Approx(1.0 / 16).epsilon(0.02));
    CHECK(deviation(model.target_positions.weight) == Approx(1.0 / 16).epsilon(0.02));
    CHECK(deviation(model.encoder.layers[1].feed_forward.fc1.weight) == Approx(std::sqrt(2.0 / 768)).epsilon(0.02));
    CHECK(deviation(model.output.bias) == 0);
    CHECK(deviation(select(model.target_embedding.weight.without_past(), 0, 0)) == 0);
}

TEST_CASE("every parameter's gradient agrees with central differences", "[transformer]") {
    Generator rng(6);
    for (const bool pre_norm : {false, true}) {
        TransformerOptions o = small_options();
        o.encoder_layers = o.decoder_layers = 1;
        o.d_model = 4, o.heads = 2, o.hidden = 5;
        o.pre_norm = pre_norm;
        o.activation = pre_norm ? Activation::gelu : Activation::relu;
        o.tie_output = pre_norm;
        Transformer model(o, rng);
        model.to(DType::f64);
        shake(model, rng);
        const Tensor source = ids({5, 7, 0, 8, 9, 10}, 2), target = ids({3, 4, 5, 6, 0, 0}, 2),
                     next = ids({4, 5, 2, 2, 0, 0}, 2);
        CrossEntropyOptions loss_options;
        loss_options.ignore_index = 0;
        const auto loss = [&] {
            return cross_entropy(reshape(model(source, target), {6, 11}), reshape(next, {6}), loss_options);
        };
        backward(loss());
        const NoGrad scope;
        for (const auto& [name, p] : model.named_parameters()) {
            INFO(name);
            REQUIRE(p.grad().defined());
            const Numbers slope = values(p.grad());
            double* element = p.data<double>();
            // A few elements of each, spread over it.
            for (std::size_t i = 0; i < slope.size(); i += 1 + slope.size() / 3) {
                const double at = element[i], h = 1e-5;
                element[i] = at + h;
                const double above = loss().item();
                element[i] = at - h;
                const double below = loss().item();
                element[i] = at;
                CHECK(std::abs(slope[i] - (above - below) / (2 * h)) < 1e-7);
            }
        }
    }
}

TEST_CASE("decoding step by step gives the logits of the whole", "[transformer]") {
    Generator rng(7);
    for (const PositionKind kind : {PositionKind::learned, PositionKind::sinusoidal}) {
        TransformerOptions o = small_options();
        o.positions = kind;
        o.pre_norm = kind == PositionKind::sinusoidal;
        Transformer model(o, rng);
        shake(model, rng);
        model.eval();
        const NoGrad scope;
        const Tensor source = ids({5, 7, 0, 0, 8, 9, 10, 11}, 2), target = ids({3, 4, 5, 6, 2, 9, 8, 7, 6, 5}, 2);
        const Tensor whole = model(source, target);
        const Memory memory = model.encode(source);
        DecoderCache cache = model.start(memory);
        for (std::int64_t t = 0; t < 5; ++t) {
            INFO("step " << t);
            const Tensor logits = model.decode_step(slice(target, 1, t, t + 1), cache);
            CHECK(logits.shape() == Shape{2, 1, 11});
            CHECK(difference(select(logits, 1, 0), select(whole, 1, t)) < 1e-5);
        }
        CHECK(cache.length == 5);
        DecoderCache chunked = model.start(memory);
        CHECK(difference(model.decode_step(slice(target, 1, 0, 3), chunked), slice(whole, 1, 0, 3)) < 1e-5);
        CHECK(difference(model.decode_step(slice(target, 1, 3, 5), chunked), slice(whole, 1, 3, 5)) < 1e-5);
    }
}

TEST_CASE("a reordered cache continues the hypotheses it was given", "[transformer]") {
    Generator rng(8);
    Transformer model(small_options(), rng);
    model.eval();
    const NoGrad scope;
    const Tensor source = ids({5, 7, 0, 8, 9, 10}, 2);
    DecoderCache cache = model.start(model.encode(source));
    model.decode_step(ids({3, 4}, 2), cache);
    model.decode_step(ids({5, 6}, 2), cache);
    cache.reorder(Tensor::from<std::int64_t>({1, 0, 1}, here));  // three hypotheses from two
    const Tensor next = model.decode_step(ids({7, 8, 9}, 3), cache);
    const Tensor whole = model(ids({8, 9, 10, 5, 7, 0, 8, 9, 10}, 3), ids({4, 6, 7, 3, 5, 8, 4, 6, 9}, 3));
    CHECK(difference(select(next, 1, 0), select(whole, 1, 2)) < 1e-5);
    // Rows 0 and 2 share their source: swapping them needs no copy of what depends on the source alone.
    const Storage* cross = &cache.layers[0].cross.key.storage();
    cache.reorder(Tensor::from<std::int64_t>({2, 1, 0}, here), true);
    CHECK(&cache.layers[0].cross.key.storage() == cross);
    const Tensor last = model.decode_step(ids({2, 2, 2}, 3), cache);
    const Tensor all = model(ids({8, 9, 10, 5, 7, 0, 8, 9, 10}, 3), ids({4, 6, 9, 2, 3, 5, 8, 2, 4, 6, 7, 2}, 3));
    CHECK(difference(select(last, 1, 0), select(all, 1, 3)) < 1e-5);
}

TEST_CASE("attention to the source can be asked for", "[transformer]") {
    Generator rng(9);
    Transformer model(small_options(), rng);
    model.eval();
    const Tensor source = ids({5, 7, 0}, 1), target = ids({3, 4}, 1);
    const Memory memory = model.encode(source);
    Tensor weights;
    const Tensor logits = model.decode(target, memory, &weights);
    CHECK(difference(logits, model.decode(target, memory)) < 1e-5);
    REQUIRE(weights.shape() == Shape{1, 4, 2, 3});
    for (const double total : values(sum(weights, {-1}))) CHECK(total == Approx(1));
    for (const double on_padding : values(select(weights, 3, 2))) CHECK(on_padding == 0);
}

TEST_CASE("what a Transformer refuses", "[transformer]") {
    Generator rng(10);
    TransformerOptions o = small_options();
    const Transformer model(o, rng);
    const std::string longer = error_of([&] { model(ids({5, 7}, 1), ids(std::vector<std::int64_t>(17, 3), 1)); });
    CHECK(contains(longer, "a sequence of 17 is longer than the 16 places"));
    CHECK(contains(longer, "(in target_positions)"));
    CHECK(contains(error_of([&] { model(ids({5, 13}, 1), ids({3}, 1)); }), "(in source_embedding)"));
    CHECK(contains(error_of([&] {
                       model(Tensor::from<std::int64_t>({5, 7}, here), ids({3}, 1));
                   }),
                   "ids must be (B, length): got (2,)"));
    o.tie_embeddings = true;
    CHECK(contains(error_of([&] { Transformer(o, rng); }),
                   "tie_embeddings needs vocabularies of one size: got 13 and 11"));
    o = small_options();
    o.pad = 11;
    CHECK(contains(error_of([&] { Transformer(o, rng); }), "pad 11"));
}

namespace {

constexpr std::int64_t pad = 0, bos = 1, eos = 2, first_symbol = 3;

struct Exercise {
    Tensor source, target, next;  ///< (B, S), bos + answer, answer + eos
};
/// Random words of length shortest … longest, padded, and the same words reversed.
Exercise reversal(int batch, int shortest, int longest, int symbols, Generator& rng) {
    std::vector<std::int64_t> source, target, next;
    const Numbers numbers = values(uniform({batch, longest + 1}, 0, 1, DType::f64, here, &rng));
    for (int b = 0; b < batch; ++b) {
        const double* row = &numbers[std::size_t(b * (longest + 1))];
        const int length = shortest + int(row[longest] * (longest - shortest + 1));
        std::vector<std::int64_t> word;
        for (int i = 0; i < length; ++i) word.push_back(first_symbol + std::int64_t(row[i] * symbols));
        std::vector<std::int64_t> answer(word.rbegin(), word.rend());
        word.resize(std::size_t(longest), pad);
        source.insert(source.end(), word.begin(), word.end());
        target.push_back(bos);
        target.insert(target.end(), answer.begin(), answer.end());
        target.insert(target.end(), std::size_t(longest - length), pad);
        answer.push_back(eos);
        answer.resize(std::size_t(longest + 1), pad);
        next.insert(next.end(), answer.begin(), answer.end());
    }
    return {ids(source, batch), ids(target, batch), ids(next, batch)};
}

/// The share of words that greedy decoding, step by step, gets right to the last symbol.
double words_right(Transformer& model, const Exercise& exercise) {
    const NoGrad scope;
    model.eval();
    const std::int64_t batch = exercise.source.size(0), length = exercise.next.size(1);
    DecoderCache cache = model.start(model.encode(exercise.source));
    Tensor token = slice(exercise.target, 1, 0, 1);
    std::vector<bool> right(std::size_t(batch), true);
    for (std::int64_t t = 0; t < length; ++t) {
        token = argmax(model.decode_step(token, cache), -1);
        const auto got = token.to_vector<std::int64_t>(),
                   wanted = select(exercise.next, 1, t).to_vector<std::int64_t>();
        for (std::size_t b = 0; b < right.size(); ++b)
            if (wanted[b] != pad && got[b] != wanted[b]) right[b] = false;
    }
    model.train();
    return double(std::count(right.begin(), right.end(), true)) / double(batch);
}

double learn_to_reverse(int layers, int shortest, int longest, int symbols, int steps, double dropout) {
    Generator rng(42);
    manual_seed(42);
    TransformerOptions o;
    o.source_vocabulary = o.target_vocabulary = first_symbol + symbols;
    o.d_model = 32, o.heads = 4, o.hidden = 64;
    o.encoder_layers = o.decoder_layers = layers;
    o.longest = 32;
    o.dropout = dropout;
    Transformer model(o, rng);
    AdamOptions adam;
    adam.lr = 3e-3;
    Adam optimizer(model.named_parameters(), adam);
    CrossEntropyOptions options;
    options.ignore_index = pad;
    for (int step = 0; step < steps; ++step) {
        const Exercise exercise = reversal(64, shortest, longest, symbols, rng);
        optimizer.set_lr(adam.lr * (1 - double(step) / steps), 0);
        model.zero_grad();
        const Tensor logits = model(exercise.source, exercise.target);
        backward(cross_entropy(flatten(logits, 0, 1), flatten(exercise.next), options));
        optimizer.step();
    }
    return words_right(model, reversal(200, shortest, longest, symbols, rng));
}

}  // namespace

TEST_CASE("a small Transformer learns to reverse words", "[transformer]") {
    CHECK(learn_to_reverse(1, 3, 5, 8, 400, 0) >= 0.99);
}

TEST_CASE("a Transformer learns to reverse longer words of any length, with dropout", "[transformer][slow]") {
    CHECK(learn_to_reverse(2, 1, 8, 10, 1000, 0.05) >= 0.97);
}
