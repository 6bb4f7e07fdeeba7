// Training on several devices: the batch is shared out, gradients are added up, and the result is that of one device.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/autograd/node.h"
#include "gradus/nn/module.h"
#include "gradus/nn/optimizer.h"
#include "gradus/parallel/crew.h"
#include "gradus/parallel/gradient_reducer.h"
#include "gradus/parallel/local.h"
#include "gradus/parallel/scatter.h"

namespace gradus::parallel {

/// What the gradients of a step belong to.
enum class LossKind {
    mean,  ///< Σ over the whole batch / the whole batch's count
    sum,   ///< Σ over the whole batch
};

struct DataParallelOptions {
    LossKind loss = LossKind::mean;
    ReducerOptions reducer = {};
    LocalOptions local = {};
};

/// The whole batch's loss, before the update.
struct StepLoss {
    double sum = 0, count = 0;
    double mean() const { return sum / count; }  ///< NaN where nothing counts
};

/// Replicas of a model, one a device, each with a thread of its own. There is no main device: every replica computes
/// the loss of its share and the optimizer's step on its own parameters, and only gradients and two numbers travel.
///
/// Note [A loss that any split leaves alone]
/// A replica returns the sum of its losses and what they count. Counts are added up first; each replica starts its
/// backward with 1 / count of the whole batch; gradients are added up. So padding, ignored targets, uneven and empty
/// shards change nothing: it is the gradient of the whole batch. Draws are numbered by the sample's place in the whole
/// batch, so dropout does not depend on the number of devices either.
///
///     DataParallel<Transformer> replicas(model, {Device::parse("cuda:0"), Device::parse("cuda:1")});
///     Replicated<Adam> optimizer(replicas, AdamOptions{.lr = 1e-3});
///     const StepLoss loss = replicas.step(batch, [](Transformer& m, const Batch& b) { return loss_of(m, b); });
///     optimizer.step({.clip_norm = 1}), optimizer.zero_grad();
template <class M>
class DataParallel {
  public:
    /// `model` moves to the first device and is replica 0: its names, its checkpoints and its buffers are those of the
    /// whole. A device may be named more than once.
    DataParallel(M& model, const std::vector<Device>& devices, const DataParallelOptions& options = {})
        : options_(options), devices_(devices), crew_(std::make_unique<Crew>(int(devices.size()))) {
        check(!devices.empty(), "DataParallel: needs at least one device");
        model.to(devices[0]);
        replicas_.push_back(&model);
        for (std::size_t i = 1; i < devices.size(); ++i) {
            clones_.push_back(clone(model));
            clones_.back()->to(devices[i]);
            replicas_.push_back(clones_.back().get());
        }
        form_group();
    }

    int size() const { return int(replicas_.size()); }
    M& replica(int i) const { return *replicas_.at(std::size_t(i)); }
    Device device(int i) const { return devices_.at(std::size_t(i)); }

    /// Forward and backward on every replica: loss(replica, its share of the batch) -> LossSum{sum, count}. Afterwards
    /// every replica's gradients are those of the whole batch. A replica whose share is empty is not called. An error
    /// of one replica is thrown here with its number and device, after all have ended; the next step begins afresh.
    template <class Loss>
    StepLoss step(const Batch& batch, Loss&& loss) {
        return run(batch, loss, true);
    }
    /// The same without adding up over the replicas: gradients gather where they are, until the next step().
    template <class Loss>
    StepLoss accumulate(const Batch& batch, Loss&& loss) {
        return run(batch, loss, false);
    }

    /// f(i, replica) in every replica's thread.
    template <class F>
    void each(F&& f) {
        crew_->run([&](int r) { f(r, replica(r)); });
    }

  private:
    /// Each module trains or not as its counterpart in replica 0, which may have parts that do not.
    void copy_training_flags() {
        const auto modules = [](M& model) {
            std::vector<Module*> list;
            model.apply([&](Module& module) { list.push_back(&module); });
            return list;
        };
        const std::vector<Module*> first = modules(*replicas_[0]);
        for (std::size_t r = 1; r < replicas_.size(); ++r) {
            const std::vector<Module*> other = modules(*replicas_[r]);
            // From the outside in: train() reaches all below.
            for (std::size_t i = first.size(); i-- > 0;) other[i]->train(first[i]->training());
        }
    }
    void form_group() {
        reducers_.clear();
        group_ = local_group(size(), options_.local);
        for (int r = 0; r < size(); ++r)
            reducers_.push_back(std::make_unique<GradientReducer>(replica(r).named_parameters(),
                                                                  *group_[std::size_t(r)], options_.reducer));
    }

    template <class Loss>
    StepLoss run(const Batch& batch, Loss& loss, bool reduce) {
        const std::int64_t samples = sample_count(batch);
        const Generator before = default_generator();
        std::vector<Generator> after(replicas_.size(), before);
        copy_training_flags();
        Tensor totals;
        try {
            crew_->run(
                [&](int r) {
                    const Share share = share_of(samples, r, size());
                    ThreadState state = thread_state();
                    state.random_scope = {true, share.begin, share.size()};
                    const ThreadStateGuard guard(state);
                    default_generator() = before;
                    const Tensor mine = work(r, share, batch, loss, reduce);
                    after[std::size_t(r)] = default_generator();
                    if (r == 0) totals = mine;
                },
                [&](int r, const std::exception& error) { group_[std::size_t(r)]->abort(error.what()); });
        } catch (...) {
            form_group();
            throw;
        }
        // Every replica that was called has drawn the same numbers of draws.
        for (const Generator& generator : after)
            if (generator != before) default_generator() = generator;
        const std::vector<double> numbers = totals.template to_vector<double>();
        return {numbers[0], numbers[1]};
    }

    template <class Loss>
    Tensor work(int r, Share share, const Batch& batch, Loss& loss, bool reduce) {
        Tensor totals = zeros({2}, DType::f64, device(r));
        LossSum own;
        if (share.size() > 0) {
            try {
                own = loss(replica(r), shard(batch, share, device(r)));
            } catch (const GroupError&) {
                throw;
            } catch (const Error& error) {
                throw Error(text("replica ", r, " on ", device(r), ": ", error.what()));
            }
            const NoGrad no_grad;
            totals = stack({cast(detach(own.sum), DType::f64), cast(detach(own.count), DType::f64)});
        }
        group_[std::size_t(r)]->all_reduce(totals);
        if (reduce) reducers_[std::size_t(r)]->start();
        if (own.sum.defined()) backward(own.sum, slope(totals, own.sum.dtype()));
        if (reduce) reducers_[std::size_t(r)]->finish();
        return totals;
    }
    /// What backward starts with: 1, or 1 over the whole batch's count (1 where that is 0: gradients are zero then).
    Tensor slope(const Tensor& totals, DType dtype) const {
        const NoGrad no_grad;
        const Tensor count = select(totals, 0, 1);
        if (options_.loss == LossKind::sum) return cast(ones_like(count), dtype);
        return cast(where(equal(count, 0.0), 1.0, div(1.0, count)), dtype);
    }

    DataParallelOptions options_;
    std::vector<Device> devices_;
    std::vector<std::unique_ptr<M>> clones_;
    std::vector<M*> replicas_;
    std::unique_ptr<Crew> crew_;
    std::vector<std::unique_ptr<Communicator>> group_;
    std::vector<std::unique_ptr<GradientReducer>> reducers_;
};

/// An optimizer for each replica; equal gradients keep the replicas equal, bit for bit.
template <class O>
class Replicated {
  public:
    template <class M, class Options>
    Replicated(DataParallel<M>& replicas, const Options& options)
        : each_([&replicas](const std::function<void(int)>& f) { replicas.each([&](int r, M&) { f(r); }); }) {
        for (int r = 0; r < replicas.size(); ++r)
            optimizers_.push_back(std::make_unique<O>(replicas.replica(r).named_parameters(), options));
    }
    void step(const StepOptions& options = {}) {
        each_([&](int r) { optimizers_[std::size_t(r)]->step(options); });
    }
    void zero_grad() {
        each_([&](int r) { optimizers_[std::size_t(r)]->zero_grad(); });
    }
    void set_lr(double lr, int group = 0) {
        for (auto& optimizer : optimizers_) optimizer->set_lr(lr, group);
    }
    /// The state is that of replica 0: all are alike.
    NamedTensors state_dict() const { return optimizers_[0]->state_dict(); }
    void load_state_dict(const NamedTensors& state) {
        for (auto& optimizer : optimizers_) optimizer->load_state_dict(state);
    }
    O& first() { return *optimizers_[0]; }

  private:
    std::function<void(const std::function<void(int)>&)> each_;
    std::vector<std::unique_ptr<O>> optimizers_;
};

}  // namespace gradus::parallel
