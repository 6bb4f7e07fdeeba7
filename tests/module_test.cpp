// The module tree: names, ties, moving, loading, paths in errors.
#include "gradus/tests/sample_module.h"

using namespace gradus;
using namespace gradus::tests;

TEST_CASE("names are the members' names joined by dots, containers use numbers", "[module]") {
    Generator rng(1);
    Outer outer(rng);
    CHECK(names_of(outer.layers[0].named_parameters()) ==
          std::vector<std::string>{"weight", "inner.weight", "inner.bias"});
    CHECK(names_of(outer.layers[0].named_buffers()) == std::vector<std::string>{"steps", "cache"});
    CHECK(names_of(outer.layers[0].state_dict()) ==
          std::vector<std::string>{"weight", "steps", "inner.weight", "inner.bias"});
    CHECK(outer.named_parameters()[4].first == "layers.1.inner.weight");
    CHECK(outer.parameters().size() == 9);
    CHECK(outer.parameter_count() == 3 * (6 + 6 + 2));
    REQUIRE(outer.children().size() == 3);
    CHECK(outer.children()[2].first == "layers.2");
    CHECK(outer.children()[2].second == &outer.layers[2]);
    const Transformer model(small_options(), rng);
    const auto names = names_of(model.named_parameters());
    CHECK(std::count(names.begin(), names.end(), "encoder.layers.0.self_attention.fc_q.weight") == 1);
    CHECK(std::count(names.begin(), names.end(), "decoder.layers.0.cross_attention.fc_o.bias") == 1);
}

TEST_CASE("an error inside a layer names the path from the outermost running module", "[module]") {
    Generator rng(1);
    const Outer outer(rng);
    const Tensor wrong = ones({5, 7}, DType::f32, here);
    CHECK(contains(error_of([&] { outer(wrong); }), "(in layers.2.inner)"));
    CHECK(contains(error_of([&] { outer.layers[1](wrong); }), "(in inner)"));
    CHECK(contains(error_of([&] { outer.layers[1].inner(wrong); }), "(in Linear)"));
    CHECK(thread_state().frame == nullptr);
}

TEST_CASE("the summary shows the tree with shapes and counts", "[module]") {
    Generator rng(1);
    Sample sample(rng);
    sample.inner.requires_grad(false);
    CHECK(sample.summary() ==
          "Sample: 14 parameters\n"
          "  weight: parameter (2, 3) f32\n"
          "  steps: buffer () i64\n"
          "  cache: buffer (4,) f32\n"
          "  inner: Linear, 8 parameters\n"
          "    weight: frozen (2, 3) f32\n"
          "    bias: frozen (2,) f32\n");
}

TEST_CASE("to(dtype) casts what is floating, keeps integers, identity, hooks' leaf and gradient", "[module]") {
    Generator rng(1);
    Sample sample(rng);
    const Tensor alias = sample.weight;
    backward(sum(sample.weight * 3.0));
    sample.to(DType::f64);
    CHECK(alias.identity() == sample.weight.identity());
    CHECK(alias.dtype() == DType::f64);
    CHECK(alias.grad().dtype() == DType::f64);
    CHECK(values(alias.grad()) == std::vector<double>(6, 3.0));
    CHECK(sample.cache.dtype() == DType::f64);
    CHECK(sample.steps.dtype() == DType::i64);
    CHECK(sample.inner.weight.requires_grad());
    CHECK(error_of([&] { sample.to(DType::i32); }) == "to: parameters are floating: got i32");
}

TEST_CASE("BB-084 to(device) leaves nothing behind", "[module]") {
    if (!two_devices()) return;
    Generator rng(1);
    for (const PositionKind kind : {PositionKind::sinusoidal, PositionKind::learned}) {
        TransformerOptions o = small_options();
        o.positions = kind;
        Transformer model(o, rng);
        model.eval();
        const Tensor source = Tensor::from<std::int64_t>({3, 4, 0, 5, 6, 7}, {2, 3}, here);
        const auto before = values(model(source, source));
        const Tensor alias = model.output.weight;
        const auto held = values(alias);

        model.to(there);
        model.check_device();
        CHECK(model.device() == there);
        for (const auto& [name, x] : model.state_dict()) {
            INFO(name);
            CHECK(x.device() == there);
        }
        for (const Tensor& x : model.buffers()) CHECK(x.device() == there);
        CHECK(alias.device() == there);
        CHECK(values(alias) == held);
        CHECK(model.drop.device() == there);  // parameter-free: remembers the last to()
        const Tensor moved = to(source, there);
        CHECK(values(model(moved, moved)) == before);

        const std::string message = error_of([&] { model(source, moved); });
        INFO(message);
        CHECK(contains(message, "cpu:1"));

        model.to(here);
        CHECK(values(model(source, source)) == before);
    }
}

TEST_CASE("a module on two devices is named tensor by tensor", "[module]") {
    if (!two_devices()) return;
    Generator rng(1);
    Linear layer(2, 3, rng);
    move_leaf(layer.bias, to(layer.bias.without_past(), there));
    CHECK(error_of([&] { layer.device(); }) ==
          "device: Linear is on several devices: weight on cpu, bias on cpu:1: move the whole module with to(device)");
}

TEST_CASE("a loss's class weights follow to(device)", "[module]") {
    if (!two_devices()) return;
    CrossEntropyOptions options;
    options.class_weights = Tensor::from<float>({1, 2, 4}, here);
    CrossEntropyLoss loss(options);
    loss.to(there);
    CHECK(loss.class_weights.device() == there);
    const Tensor logits = zeros({2, 3}, DType::f32, there);
    const Tensor targets = Tensor::from<std::int64_t>({0, 2}, there);
    CHECK(loss(logits, targets).item() == Approx(std::log(3.0)));
}

TEST_CASE("BB-085 shared weights stay shared", "[module]") {
    Generator rng(1);
    TransformerOptions o = small_options();
    o.tie_output = o.tie_embeddings = true;
    Transformer model(o, rng);
    const auto tied = [&] {
        return &model.output.weight.storage() == &model.target_embedding.weight.storage() &&
               &model.output.weight.storage() == &model.source_embedding.weight.storage();
    };
    CHECK(tied());
    const auto names = names_of(model.named_parameters());
    CHECK(std::count(names.begin(), names.end(), "source_embedding.weight") == 1);
    CHECK(std::count(names.begin(), names.end(), "output.weight") == 0);
    if (two_devices()) {
        model.to(there);
        CHECK(tied());
        CHECK(model.output.weight.device() == there);
        model.to(here);
        CHECK(tied());
    }
    model.to(DType::f64);
    CHECK(tied());

    NamedTensors state = model.state_dict();
    const auto entry = [&state](const std::string& name) {
        return std::find_if(state.begin(), state.end(), [&](const auto& e) { return e.first == name; });
    };
    REQUIRE(entry("output.weight") != state.end());
    REQUIRE(entry("source_embedding.weight") != state.end());
    // One name is enough; two that disagree are refused and nothing is loaded.
    const Tensor other = full_like(model.output.weight.without_past(), 0.25);
    const auto before = values(model.output.weight);
    entry("output.weight")->second = other;
    CHECK(contains(error_of([&] { model.load_state_dict(state); }), "names of one tied tensor bring different values"));
    CHECK(values(model.output.weight) == before);
    state.erase(entry("source_embedding.weight"));
    state.erase(entry("target_embedding.weight"));
    CHECK(model.load_state_dict(state).clean());
    CHECK(values(model.source_embedding.weight) == values(other));
}

TEST_CASE("BB-141 a module names what is missing and what is unexpected", "[module]") {
    Generator rng(1);
    Linear layer(2, 3, rng);
    const auto weight = values(layer.weight), bias = values(layer.bias);
    const NamedTensors wrong = {{"weight", ones({3, 3}, DType::f32, here)}, {"extra", ones({1}, DType::f32, here)}};
    CHECK(error_of([&] { layer.load_state_dict(wrong); }) ==
          "load_state_dict: the state does not fit Linear:\n  missing: bias\n  unexpected: extra\n  misshapen: weight "
          "is (3, 2) "
          "f32 here, (3, 3) f32 there\n  nothing was loaded; strict = false loads what fits");
    // All or nothing: a right weight beside a wrong bias is not loaded either.
    const Tensor right = ones({3, 2}, DType::f32, here);
    const std::string message = error_of([&] {
        layer.load_state_dict({{"weight", right}, {"bias", ones({3}, DType::f64, here)}});
    });
    CHECK(contains(message, "misshapen: bias is (3,) f32 here, (3,) f64 there"));
    CHECK(values(layer.weight) == weight);

    LoadOptions lenient;
    lenient.strict = false;
    const LoadReport report = layer.load_state_dict({{"weight", right}, {"more", right}}, lenient);
    CHECK(report.missing == std::vector<std::string>{"bias"});
    CHECK(report.unexpected == std::vector<std::string>{"more"});
    CHECK(report.misshapen.empty());
    CHECK(values(layer.weight) == std::vector<double>(6, 1.0));
    CHECK(values(layer.bias) == bias);

    LoadOptions prefixed;
    prefixed.strip_prefix = "module.";
    const Tensor twos = full({3}, 2, DType::f32, here);
    CHECK(layer.load_state_dict({{"module.weight", right}, {"module.bias", twos}}, prefixed).clean());
    CHECK(values(layer.bias) == std::vector<double>(3, 2.0));
    CHECK(contains(error_of([&] {
                       layer.load_state_dict({{"module.weight", right}, {"module.bias", twos}});
                   }),
                   "module.bias"));
    CHECK(contains(error_of([&] {
                       layer.load_state_dict({{"bias", twos}, {"module.bias", twos}, {"weight", right}}, prefixed);
                   }),
                   "bias is given twice"));
}

TEST_CASE("loading writes into the parameter that others hold, and backward sees the write", "[module]") {
    Generator rng(1);
    Linear layer(2, 2, rng);
    const Tensor alias = layer.weight;
    const Tensor x = require_grad(ones({1, 2}, DType::f32, here));
    const Tensor y = sum(layer(x));
    layer.load_state_dict({{"weight", ones({2, 2}, DType::f32, here)}, {"bias", zeros({2}, DType::f32, here)}});
    CHECK(values(alias) == std::vector<double>(4, 1.0));
    CHECK(contains(error_of([&] { backward(y); }), "modified in place"));
}
