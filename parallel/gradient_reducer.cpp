#include "gradus/parallel/gradient_reducer.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/stream.h"

namespace gradus::parallel {
namespace {

struct Entry {
    Tensor parameter;
    Tensor slot;  ///< its place in the bucket, of its shape
    std::size_t bucket = 0;
    bool here = false;  ///< its gradient is in the slot
};
struct Bucket {
    Tensor flat;
    std::size_t count = 0, missing = 0;
    Event filled, summed;
};

}  // namespace

struct GradientReducer::State {
    State(Communicator& group) : group(group) {}

    Communicator& group;
    std::vector<Entry> entries;  // in the order of the buckets
    std::vector<Bucket> buckets;
    std::size_t next = 0;  ///< the first bucket that has not been given out
    bool active = false;

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::size_t> given;
    std::size_t done = 0;
    std::exception_ptr error;
    bool ending = false;
    std::thread worker;

    /// Memory for the buckets, one contiguous tensor each.
    void lay_out() {
        std::vector<std::int64_t> elements(buckets.size(), 0);
        for (const Entry& entry : entries) elements[entry.bucket] += entry.parameter.numel();
        std::int64_t at = 0;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            Entry& entry = entries[i];
            Tensor& flat = buckets[entry.bucket].flat;
            if (!flat.defined()) {
                flat = zeros({elements[entry.bucket]}, entry.parameter.dtype(), entry.parameter.device());
                at = 0;
            }
            const Layout dense(entry.parameter.shape());
            entry.slot = flat.with_layout(Layout(dense.shape, dense.strides, at));
            at += entry.parameter.numel();
        }
    }
    void put(std::size_t i, const Tensor& gradient) {
        Entry& entry = entries[i];
        if (!active || entry.here) return;
        const NoGrad no_grad;
        copy_(entry.slot, gradient);
        entry.here = true;
        --buckets[entry.bucket].missing;
        give_out();
    }
    void give_out() {
        for (; next < buckets.size() && buckets[next].missing == 0; ++next) {
            Bucket& bucket = buckets[next];
            bucket.filled.record(Stream::current(bucket.flat.device()));
            const std::lock_guard lock(mutex);
            given.push_back(next);
            changed.notify_all();
        }
    }
    /// The thread that sums: its own stream on a card, so that backward's kernels go on beside it.
    void work() {
        const NoGrad no_grad;
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [&] { return ending || !given.empty(); });
            if (given.empty()) return;
            Bucket& bucket = buckets[given.front()];
            given.pop_front();
            lock.unlock();
            try {
                const Stream stream(streams_of(bucket.flat.device()));
                const StreamGuard guard(stream);
                bucket.filled.wait(stream);
                group.all_reduce(bucket.flat, Reduce::sum);
                bucket.summed.record(stream);
            } catch (...) {
                lock.lock();
                if (!error) error = std::current_exception();
                lock.unlock();
            }
            lock.lock();
            ++done;
            changed.notify_all();
        }
    }
    Stream streams_of(Device device) {
        for (const Stream& known : streams)
            if (known.device() == device) return known;
        return streams.emplace_back(device);
    }
    std::vector<Stream> streams;
};

GradientReducer::GradientReducer(const NamedTensors& parameters, Communicator& group, const ReducerOptions& options)
    : state_(std::make_shared<State>(group)) {
    check(options.bucket_bytes > 0 && options.first_bucket_bytes > 0, "GradientReducer: buckets need a positive size");
    State& s = *state_;
    std::int64_t bytes = 0;  // of the last bucket
    for (auto p = parameters.rbegin(); p != parameters.rend(); ++p) {
        const Tensor& parameter = p->second;
        if (!parameter.requires_grad()) continue;
        const std::int64_t own = parameter.numel() * size_of(parameter.dtype());
        const std::int64_t most = s.buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
        const bool fits = !s.entries.empty() && s.entries.back().parameter.dtype() == parameter.dtype() &&
                          s.entries.back().parameter.device() == parameter.device() &&
                          (bytes == 0 || bytes + own <= most);
        if (!fits) s.buckets.emplace_back(), bytes = 0;
        s.entries.push_back({parameter, {}, s.buckets.size() - 1});
        ++s.buckets.back().count;
        bytes += own;
    }
    s.lay_out();
    for (std::size_t i = 0; i < s.entries.size(); ++i)
        on_grad(s.entries[i].parameter, [weak = std::weak_ptr<State>(state_), i](const Tensor& gradient) {
            if (const auto state = weak.lock()) state->put(i, gradient);
        });
    s.worker = std::thread([&s] { s.work(); });
}

GradientReducer::~GradientReducer() {
    {
        const std::lock_guard lock(state_->mutex);
        state_->ending = true;
        state_->changed.notify_all();
    }
    state_->worker.join();
}

std::size_t GradientReducer::bucket_count() const { return state_->buckets.size(); }

void GradientReducer::start() {
    State& s = *state_;
    check(!s.active, "GradientReducer: start() again without finish()");
    s.active = true;
    s.next = 0, s.done = 0, s.error = nullptr;
    for (Bucket& bucket : s.buckets) bucket.missing = bucket.count;
    for (Entry& entry : s.entries) entry.here = false;
}

void GradientReducer::finish() {
    const NoGrad no_grad;
    State& s = *state_;
    check(s.active, "GradientReducer: finish() without start()");
    std::vector<std::int32_t> here;
    for (Entry& entry : s.entries) {
        // What an earlier backward added up and this one did not touch goes out too.
        if (const Tensor g = entry.parameter.grad(); !entry.here && g.defined())
            copy_(entry.slot, g), entry.here = true, --s.buckets[entry.bucket].missing;
        here.push_back(entry.here);
        if (entry.here) continue;
        fill_(entry.slot, 0);
        --s.buckets[entry.bucket].missing;
    }
    s.give_out();
    s.active = false;
    {
        std::unique_lock lock(s.mutex);
        s.changed.wait(lock, [&] { return s.done == s.buckets.size(); });
        if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
    }
    const Tensor anywhere = Tensor::from(here, Device{});
    s.group.all_reduce(anywhere, Reduce::max);
    const std::vector<std::int32_t> wanted = anywhere.to_vector<std::int32_t>();
    for (Bucket& bucket : s.buckets) bucket.summed.wait(Stream::current(bucket.flat.device()));
    for (std::size_t i = 0; i < s.entries.size(); ++i)
        if (wanted[i]) assign_grad(s.entries[i].parameter, s.entries[i].slot);
}

}  // namespace gradus::parallel
