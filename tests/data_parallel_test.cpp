// Training on several devices gives what one device gives.
#include <cmath>

#include "gradus/nn/loss.h"
#include "gradus/nn/seq2seq.h"
#include "gradus/parallel/data_parallel.h"
#include "gradus/tests/cards.h"

namespace gradus::tests {
namespace {

using namespace gradus::parallel;

/// Classes from tokens: an embedding, dropout, and a part that is not always used.
struct Net final : Layer<Net> {
    explicit Net(Generator& rng)
        : table(11, 8, rng), hidden(8, 16, rng), out(16, 5, rng), unused(3, 3, rng), drop(0.25) {}
    Tensor forward(const Tensor& ids) const { return out(drop(tanh(hidden(table(ids))))); }
    void visit(Visitor& v) override {
        v("table", table), v("hidden", hidden), v("out", out), v("unused", unused), v("drop", drop);
    }
    Embedding table;
    Linear hidden, out, unused;
    Dropout drop;
};

constexpr std::int64_t length = 4;

/// Sentences of different lengths: targets behind the end are ignored.
Batch sentences(std::int64_t n) {
    std::vector<std::int64_t> ids, targets;
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t t = 0; t < length; ++t) {
            ids.push_back((i * 7 + t * 3) % 11);
            targets.push_back(t < (i * i) % (length + 1) ? (i + t) % 5 : -100);
        }
    return NamedTensors{{"ids", Tensor::from(ids, {n, length}, Device{})},
                        {"targets", Tensor::from(targets, {n, length}, Device{})}};
}

LossSum loss_of(const Net& net, const Batch& batch) {
    const Tensor logits = net(batch["ids"]);
    return cross_entropy_sum(reshape(logits, {logits.numel() / 5, 5}), reshape(batch["targets"], {logits.numel() / 5}));
}

std::vector<Device> devices_of(int count, bool cards) {
    std::vector<Device> list;
    for (int i = 0; i < count; ++i) list.push_back(cards ? card(i % device_count(Device::cuda)) : Device{});
    return list;
}

/// ‖a - b‖ / ‖b‖ of a parameter's gradient.
double distance(const Tensor& a, const Tensor& b) {
    const auto x = a.to_vector<double>(), y = b.to_vector<double>();
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) difference += (x[i] - y[i]) * (x[i] - y[i]), size += y[i] * y[i];
    return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

struct Gradients {
    StepLoss loss;
    NamedTensors list;  // of replica 0, undefined ones too
};
Gradients gradients_on(const std::vector<Device>& devices, std::int64_t samples,
                       const DataParallelOptions& options = {}) {
    Generator rng(3);
    Net net(rng);
    DataParallel<Net> replicas(net, devices, options);
    manual_seed(5);
    Gradients result;
    result.loss = replicas.step(sentences(samples), loss_of);
    for (const auto& [name, parameter] : net.named_parameters())
        result.list.emplace_back(name, parameter.grad().defined() ? to(parameter.grad(), Device{}) : Tensor());
    return result;
}

TEST_CASE("BB-089 BB-092 the gradient on N devices is that of one, whatever the split", "[parallel]") {
    for (const bool cards : {false, true}) {
        if (cards && !have_cards(2)) return;
        for (const LossKind kind : {LossKind::mean, LossKind::sum})
            for (const std::int64_t samples : {1, 2, 3, 7, 12}) {
                DataParallelOptions options;
                options.loss = kind;
                options.reducer.first_bucket_bytes = 256, options.reducer.bucket_bytes = 512;
                const Gradients one = gradients_on(devices_of(1, false), samples, options);
                for (const int ranks : {1, 2, 3, 4}) {
                    if (cards && ranks == 4) continue;
                    INFO(ranks << (cards ? " cards, " : " ranks, ") << samples << " samples");
                    const Gradients many = gradients_on(devices_of(ranks, cards), samples, options);
                    CHECK(many.loss.count == one.loss.count);
                    CHECK(many.loss.sum == Approx(one.loss.sum).epsilon(1e-6));
                    for (std::size_t i = 0; i < one.list.size(); ++i) {
                        INFO(one.list[i].first);
                        REQUIRE(many.list[i].second.defined() == one.list[i].second.defined());
                        if (one.list[i].second.defined())
                            CHECK(distance(many.list[i].second, one.list[i].second) <= 1e-6);
                    }
                }
            }
    }
}

TEST_CASE("BB-096 a step's gradient is that of the mean, or of the sum, over the whole batch", "[parallel]") {
    for (const LossKind kind : {LossKind::mean, LossKind::sum}) {
        Generator first(3), second(3);
        Net net(first), plain(second);
        net.eval(), plain.eval();
        DataParallelOptions options;
        options.loss = kind;
        DataParallel<Net> replicas(net, devices_of(3, false), options);
        const StepLoss loss = replicas.step(sentences(7), loss_of);
        const LossSum own = loss_of(plain, sentences(7));
        CHECK(loss.mean() == Approx(own.sum.item() / own.count.item()).epsilon(1e-6));
        backward(kind == LossKind::mean ? own.sum / own.count : own.sum);
        for (std::size_t i = 0; i < net.parameters().size(); ++i) {
            const Tensor wanted = plain.parameters()[i].grad();
            if (wanted.defined()) CHECK(distance(net.parameters()[i].grad(), wanted) <= 1e-6);
        }
    }
}

TEST_CASE("BB-094 a rank that counts nothing adds nothing; only a batch that counts nothing has no loss",
          "[parallel]") {
    Generator rng(3);
    Net net(rng);
    DataParallel<Net> replicas(net, devices_of(2, false));
    Batch batch = sentences(4);
    batch["targets"] =
        Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4, 0, 1, 2, 3, -100, -100, -100, -100, -100, -100, -100, -100},
                     {4, length}, Device{});
    const StepLoss loss = replicas.step(batch, loss_of);
    CHECK(loss.count == 8);
    CHECK(std::isfinite(loss.mean()));
    for (const Tensor& parameter : {net.out.weight, net.hidden.weight})
        for (const double g : parameter.grad().to_vector<double>()) CHECK(std::isfinite(g));
    net.zero_grad(), replicas.replica(1).zero_grad();
    batch["targets"] = full({4, length}, -100, DType::i64, Device{});
    const StepLoss none = replicas.step(batch, loss_of);
    CHECK(none.count == 0);
    CHECK(std::isnan(none.mean()));
    for (const double g : net.out.weight.grad().to_vector<double>()) CHECK(g == 0);
}

TEST_CASE("BB-100 parameters that are frozen, unused or tied, and names that do not change", "[parallel]") {
    Generator rng(3);
    Net net(rng);
    require_grad(net.hidden.bias, false);
    DataParallel<Net> replicas(net, devices_of(3, false));
    replicas.step(sentences(5), loss_of);
    CHECK_FALSE(net.hidden.bias.grad().defined());
    CHECK_FALSE(net.unused.weight.grad().defined());  // on no rank
    CHECK(net.table.weight.grad().defined());
    CHECK(net.state_dict().front().first == "table.weight");
    // A parameter that one shard alone uses counts as zero on the others.
    net.zero_grad(), replicas.replica(1).zero_grad(), replicas.replica(2).zero_grad();
    replicas.step(sentences(5), [](const Net& m, const Batch& batch) {
        LossSum loss = loss_of(m, batch);
        if (batch["ids"].size(0) == 1) loss.sum = loss.sum + sum(m.unused(ones({2, 3}, DType::f32, Device{})));
        return loss;
    });
    for (int r = 0; r < 3; ++r) CHECK(replicas.replica(r).unused.weight.grad().defined());
    CHECK(replicas.replica(0).unused.weight.grad().to_vector<float>() ==
          replicas.replica(2).unused.weight.grad().to_vector<float>());
}

TEST_CASE("BB-102 gradients of several batches are added up over the replicas once", "[parallel][threads]") {
    const auto gradient = [](int ranks, bool at_once) {
        Generator rng(3);
        Net net(rng);
        net.eval();
        DataParallelOptions options;
        options.loss = LossKind::sum;
        DataParallel<Net> replicas(net, devices_of(ranks, false), options);
        const Batch all = sentences(8);
        if (at_once) {
            replicas.step(all, loss_of);
        } else {
            replicas.accumulate(shard(all, {0, 3}, Device{}), loss_of);
            replicas.step(shard(all, {3, 8}, Device{}), loss_of);
        }
        return net.hidden.weight.grad();
    };
    const Tensor one = gradient(1, true);
    for (const int ranks : {1, 2, 3}) CHECK(distance(gradient(ranks, false), one) <= 1e-6);
}

TEST_CASE("BB-103 BB-120 replicas start equal, stay equal, and learn what one learns", "[parallel][threads]") {
    for (const bool cards : {false, true}) {
        if (cards && !have_cards(2)) return;
        const auto losses = [&](int ranks, bool on_cards) {
            Generator rng(3);
            Net net(rng);
            DataParallel<Net> replicas(net, devices_of(ranks, on_cards));
            Replicated<Adam> optimizer(replicas, AdamOptions{.lr = 0.01});
            manual_seed(7);
            std::vector<double> list;
            for (int step = 0; step < (on_cards ? 5 : 30); ++step) {
                list.push_back(replicas.step(sentences(6 + step % 3), loss_of).mean());
                optimizer.step({.clip_norm = 1}), optimizer.zero_grad();
            }
            for (int r = 1; r < ranks; ++r) {
                const auto first = net.named_parameters(), other = replicas.replica(r).named_parameters();
                for (std::size_t i = 0; i < first.size(); ++i)
                    CHECK(other[i].second.to_vector<float>() == first[i].second.to_vector<float>());
            }
            return list;
        };
        const std::vector<double> one = losses(1, false), many = losses(cards ? 2 : 4, cards);
        for (std::size_t i = 0; i < many.size(); ++i) CHECK(many[i] == Approx(one[i]).epsilon(2e-4));
        if (!cards) CHECK(one.back() < 0.7 * one.front());
    }
}

TEST_CASE("BB-119 a part of the model that is not training stays so on every replica", "[parallel]") {
    Generator rng(3);
    Net net(rng);
    DataParallel<Net> replicas(net, devices_of(3, false));
    net.drop.eval();
    replicas.step(sentences(6), loss_of);
    for (int r = 0; r < 3; ++r) {
        CHECK_FALSE(replicas.replica(r).drop.training());
        CHECK(replicas.replica(r).hidden.training());
        CHECK(replicas.replica(r).training());
    }
    net.eval();
    net.drop.train();
    replicas.step(sentences(6), loss_of);
    for (int r = 0; r < 3; ++r) {
        CHECK(replicas.replica(r).drop.training());
        CHECK_FALSE(replicas.replica(r).training());
    }
}

TEST_CASE("BB-106 an error in one replica is told with its number, wakes the others, and the next step works",
          "[parallel][threads]") {
    Generator rng(3);
    Net net(rng);
    DataParallel<Net> replicas(net, devices_of(3, false));
    for (int round = 0; round < 20; ++round) {
        Batch batch = sentences(6);
        std::vector<std::int64_t> ids(24, 1);
        ids[20] = 99;
        batch["ids"] = Tensor::from(ids, {6, length}, Device{});
        const std::string error = error_of([&] { replicas.step(batch, loss_of); });
        CHECK(contains(error, "replica 2 on cpu: embedding: index 99 at position (1, 0) is out of range"));
        net.zero_grad(), replicas.replica(1).zero_grad(), replicas.replica(2).zero_grad();
        CHECK(replicas.step(sentences(6), loss_of).count > 0);
    }
}

TEST_CASE("BB-090 shares are balanced, and batches that cannot be shared out are refused", "[parallel]") {
    for (std::int64_t n = 0; n <= 17; ++n)
        for (int ranks = 1; ranks <= 8; ++ranks) {
            std::int64_t at = 0;
            for (int r = 0; r < ranks; ++r) {
                const Share share = share_of(n, r, ranks);
                CHECK(share.begin == at);
                CHECK((share.size() == n / ranks || share.size() == n / ranks + 1));
                at = share.end;
            }
            CHECK(at == n);
        }
    Batch batch = sentences(3);
    batch["scale"] = Tensor::scalar(2, DType::f32, Device{});
    CHECK(sample_count(batch) == 3);
    CHECK(shard(batch, {1, 3}, Device{})["ids"].shape() == Shape{2, length});
    CHECK(shard(batch, {1, 1}, Device{})["scale"].item() == 2);  // shared by all
    batch["weights"] = ones({4}, DType::f32, Device{});
    CHECK(error_of([&] { sample_count(batch); }) ==
          "scatter: 'ids' has 3 samples and 'weights' has 4 (shape (4,)): axis 0 counts the samples");
    CHECK(contains(error_of([] {
                       sample_count(Batch(NamedTensors{{"a", Tensor::scalar(1, DType::f32, Device{})}}));
                   }),
                   "no samples to share out"));
}

}  // namespace
}  // namespace gradus::tests
