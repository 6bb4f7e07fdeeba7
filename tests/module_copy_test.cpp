// The module tree: the search for raw tensors, copying, freezing, the training flag.
#include "gradus/tests/sample_module.h"

using namespace gradus;
using namespace gradus::tests;

namespace {

struct Pair {
    Tensor first;
    int number = 0;
};

/// The mistake: tensors that visit does not list, as a plain member, in a struct, in an array, in an optional.
class Forgetful final : public Layer<Forgetful> {
  public:
    explicit Forgetful(Generator& rng) : linear(2, 2, rng) {}
    Tensor forward(const Tensor& x) const { return linear(x); }
    void visit(Visitor& v) override { v("linear", linear); }
    Linear linear;
    Tensor scale;
    Pair pair;
    std::array<Tensor, 2> several;
    std::optional<Tensor> maybe;
};

class Uncopyable final : public Layer<Uncopyable> {
  public:
    Tensor forward(const Tensor& x) const { return x; }
    void visit(Visitor& v) override { v("inner", inner); }
    std::unique_ptr<Linear> inner;
    std::unique_ptr<int> number;
    Tensor scale;
};

class Copyable final : public Layer<Copyable> {
  public:
    Tensor forward(const Tensor& x) const { return x; }
    void visit(Visitor& v) override { v("listed", listed); }
    Buffer listed;
    Tensor scale;
    const void* borrowed = nullptr;  // looks like a handle, but owns nothing
};

class Holder final : public Layer<Holder> {
  public:
    explicit Holder(Generator& rng) : inner(rng) {}
    Tensor forward(const Tensor& x) const { return inner(x); }
    void visit(Visitor& v) override { v("inner", inner); }
    Forgetful inner;
};

}  // namespace

TEST_CASE("BB-084 a raw tensor member is reported by path, and nothing is moved", "[module]") {
    Generator rng(1);
    Holder holder(rng);
    holder.to(here);
    holder.to(DType::f64);

    const auto refused = [&] {
        const std::string message = error_of([&] { holder.to(DType::f32); });
        INFO(message);
        CHECK(contains(message, "module: inner (Forgetful) owns a raw Tensor of shape (5,) on cpu"));
        CHECK(contains(message, "declare the member as Parameter or Buffer and list it"));
        CHECK(holder.inner.linear.weight.dtype() == DType::f64);
        CHECK(contains(error_of([&] { holder.check_device(); }), "owns a raw Tensor"));
        CHECK(contains(error_of([&] { clone(holder); }), "owns a raw Tensor"));
    };
    const Tensor five = ones({5}, DType::f32, here);
    holder.inner.scale = five;
    refused();
    holder.inner.scale = Tensor();
    holder.inner.pair.first = five;
    refused();
    holder.inner.pair.first = Tensor();
    holder.inner.several[1] = five;
    refused();
    holder.inner.several[1] = Tensor();
    holder.inner.maybe = five;
    refused();
    holder.inner.maybe.reset();
    holder.to(here);
}

TEST_CASE("the search for raw tensors believes only words that own one", "[module]") {
    Copyable layer;
    const Tensor elsewhere = ones({3}, DType::f32, here);
    layer.listed = Buffer(ones({2}, DType::f32, here));
    layer.borrowed = elsewhere.identity();
    layer.to(DType::f64);
    CHECK(layer.listed.dtype() == DType::f64);
    layer.scale = elsewhere;
    CHECK(contains(error_of([&] { layer.to(here); }), "module: Copyable (Copyable) owns a raw Tensor of shape (3,)"));
}

TEST_CASE("a layer that cannot be copied is searched too", "[module]") {
    Generator rng(1);
    Uncopyable layer;
    layer.inner = std::make_unique<Linear>(2, 2, rng);
    layer.number = std::make_unique<int>(7);
    layer.to(DType::f64);
    CHECK(layer.inner->weight.dtype() == DType::f64);
    CHECK(contains(error_of([&] { clone(layer); }), "clone: Uncopyable cannot be copied"));
    layer.scale = ones({3}, DType::f32, here);
    CHECK(
        contains(error_of([&] { layer.to(here); }), "module: Uncopyable (Uncopyable) owns a raw Tensor of shape (3,)"));
}

TEST_CASE("clone copies every tensor and keeps ties; a plain copy is refused", "[module]") {
    Generator rng(1);
    TransformerOptions o = small_options();
    o.tie_output = true;
    o.positions = PositionKind::sinusoidal;
    Transformer model(o, rng);
    model.encoder.requires_grad(false);
    model.eval();
    const auto copy = clone(model);
    CHECK(!copy->training());
    CHECK(copy->output.weight.identity() == copy->target_embedding.weight.identity());
    CHECK(!copy->encoder.layers[0].norm1.weight.requires_grad());
    CHECK(copy->decoder.layers[0].norm1.weight.requires_grad());
    std::set<const void*> mine;
    for (const auto& [name, x] : model.state_dict()) mine.insert(&x.storage());
    for (const Tensor& x : model.buffers()) mine.insert(&x.storage());
    const auto left = model.state_dict(), right = copy->state_dict();
    REQUIRE(names_of(left) == names_of(right));
    for (std::size_t i = 0; i < left.size(); ++i) {
        INFO(left[i].first);
        CHECK(!mine.contains(&right[i].second.storage()));
        CHECK(values(left[i].second) == values(right[i].second));
    }
    for (const Tensor& x : copy->buffers()) CHECK(!mine.contains(&x.storage()));
    CHECK(contains(error_of([&] { const Linear plain = model.output; }),
                   "use clone(module)"));  // NOLINT: the copy is the test

    const Sequential net(Linear(2, 3, rng), Function(relu), Linear(3, 1, rng));
    const auto other = clone(net);
    const Tensor x = Tensor::from<float>({1, -2, 3, 4}, {2, 2}, here);
    CHECK(values((*other)(x)) == values(net(x)));
    CHECK(names_of(other->named_parameters()) == std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
}

TEST_CASE("a replica reads a buffer that was set after construction", "[module]") {
    Generator rng(1);
    Sample sample(rng);
    fill_(sample.steps, 5);
    CHECK(clone(sample)->steps.item<std::int64_t>() == 5);
}

TEST_CASE("freezing, clearing gradients, applying a function", "[module]") {
    Generator rng(1);
    Linear layer(2, 2, rng);
    backward(sum(layer(ones({1, 2}, DType::f32, here))));
    CHECK(layer.weight.grad().defined());
    layer.zero_grad();
    CHECK(!layer.weight.grad().defined());
    layer.requires_grad(false);
    CHECK(!layer(ones({1, 2}, DType::f32, here)).requires_grad());
    layer.requires_grad(true);
    CHECK(layer(ones({1, 2}, DType::f32, here)).requires_grad());
    Outer outer(rng);
    std::vector<std::string> kinds;
    outer.apply([&](Module& m) { kinds.push_back(m.kind()); });
    CHECK(kinds == std::vector<std::string>{"Linear", "Sample", "Linear", "Sample", "Linear", "Sample", "Outer"});
}

TEST_CASE("BB-119 the training flag reaches everything", "[module]") {
    Generator rng(1);
    TransformerOptions o = small_options();
    o.dropout = 0.5;
    o.encoder_layers = 2;
    Transformer model(o, rng);
    o.dropout = 0;
    Transformer plain(o, rng);
    plain.load_state_dict(model.state_dict());
    const Tensor source = Tensor::from<std::int64_t>({3, 4, 9, 5, 6, 7, 8, 0}, {2, 4}, here);
    const auto run = [&](const Transformer& m) { return values(m(source, source)); };

    model.eval();
    const auto quiet = run(model);
    CHECK(run(model) == quiet);
    CHECK(run(plain) == quiet);
    model.train();
    CHECK(run(model) != run(model));

    // Every place where elements are dropped, one at a time.
    std::vector<Module*> places;
    model.apply([&](Module& m) {
        CHECK(m.training());
        if (m.kind() == "Dropout" || m.kind() == "MultiHeadAttention") places.push_back(&m);
    });
    CHECK(places.size() ==
          1 + 2 * 3 + 4);  // embeddings; attention, feed-forward, residuals; two attentions in the decoder
    for (std::size_t i = 0; i < places.size(); ++i) {
        INFO("place " << i << ", a " << places[i]->kind());
        model.eval();
        places[i]->train();
        CHECK(run(model) != run(model));
    }
    model.eval();
    CHECK(run(model) == quiet);
}
