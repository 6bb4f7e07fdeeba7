#include "gradus/nn/data.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "gradus/core/random.h"

namespace gradus {
namespace {

/// Counters of other users of the same seed (Draw) begin with small words.
constexpr std::uint32_t shuffle_stream = 0x53485546, batch_stream = 0x42415443;

std::uint64_t random_word(std::uint64_t index, std::uint64_t epoch, std::uint32_t stream, std::uint64_t seed) {
    const PhiloxBlock block = philox({std::uint32_t(index), std::uint32_t(index >> 32), std::uint32_t(epoch), stream},
                                     {std::uint32_t(seed), std::uint32_t(seed >> 32)});
    return std::uint64_t(block[0]) << 32 | block[1];
}

/// The upper half of word · n: a number below n, even to within n / 2^64.
std::uint64_t below(std::uint64_t n, std::uint64_t word) {
    const std::uint64_t a = word >> 32, b = word & 0xffffffff, c = n >> 32, d = n & 0xffffffff;
    const std::uint64_t middle = a * d + (b * d >> 32), cross = b * c + (middle & 0xffffffff);
    return a * c + (middle >> 32) + (cross >> 32);
}

}  // namespace

Indices shuffled(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
    check(n >= 0, "shuffled: the count must be 0 or more: got ", n);
    Indices order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), std::int64_t(0));
    for (std::uint64_t i = std::uint64_t(n); i > 1; --i)  // Fisher, Yates
        std::swap(order[i - 1], order[below(i, random_word(i, std::uint64_t(epoch), shuffle_stream, seed))]);
    return order;
}

DataLoader::DataLoader(std::int64_t size, MakeBatch make, LoaderOptions options)
    : size_(size), make_(std::move(make)), options_(std::move(options)) {
    check(size_ > 0, "data: the data set is empty: it holds ", size_, " samples");
    check(options_.prefetch >= 0, "data: prefetch must be 0 or more: got ", options_.prefetch);
    if (options_.plan) return;
    check(options_.batch_size >= 1, "data: batch_size must be 1 or more: got ", options_.batch_size);
    check(!options_.drop_last || size_ >= options_.batch_size, "data: with drop_last no batch is left: ", size_,
          " samples, batch size ", options_.batch_size);
}

DataLoader::~DataLoader() { stop(); }

std::vector<Indices> DataLoader::plan(std::int64_t epoch) const {
    if (options_.plan) {
        std::vector<Indices> batches = options_.plan(epoch);
        check(!batches.empty(), "data: the plan of epoch ", epoch, " has no batches");
        for (const Indices& batch : batches)
            for (const std::int64_t index : batch)
                check(index >= 0 && index < size_, "data: the plan of epoch ", epoch, " names sample ", index, " of ",
                      size_);
        return batches;
    }
    Indices order;
    if (options_.shuffle) {
        order = shuffled(size_, options_.seed, epoch);
    } else {
        order.resize(std::size_t(size_));
        std::iota(order.begin(), order.end(), std::int64_t(0));
    }
    std::vector<Indices> batches;
    for (std::int64_t at = 0; at < size_; at += options_.batch_size) {
        const std::int64_t end = std::min(size_, at + options_.batch_size);
        if (options_.drop_last && end - at < options_.batch_size) break;
        batches.emplace_back(order.begin() + at, order.begin() + end);
    }
    return batches;
}

std::int64_t DataLoader::batches() const {
    if (!options_.plan) {
        const std::int64_t full = size_ / options_.batch_size;
        return full + (!options_.drop_last && size_ % options_.batch_size != 0);
    }
    if (planned_epoch_ != epoch_) planned_ = plan(epoch_), planned_epoch_ = epoch_;
    return std::int64_t(planned_.size());
}

Batch DataLoader::make(const Indices& indices, std::int64_t epoch, std::int64_t position) const {
    struct Restore {
        Generator before = default_generator();
        ~Restore() { default_generator() = before; }
    } restore;
    default_generator() =
        Generator(random_word(std::uint64_t(position), std::uint64_t(epoch), batch_stream, options_.seed));
    return make_(indices);
}

bool DataLoader::push(Item item) {
    std::unique_lock lock(mutex_);
    emptied_.wait(lock, [&] { return stopping_ || queue_.size() < std::size_t(options_.prefetch); });
    if (stopping_) return false;
    queue_.push_back(std::move(item));
    filled_.notify_one();
    return true;
}

void DataLoader::work(std::int64_t epoch, std::int64_t position, ThreadState state) {
    const ThreadStateGuard guard(state);
    try {
        for (;; ++epoch, position = 0) {
            const std::vector<Indices> batches = plan(epoch);
            for (; position < std::int64_t(batches.size()); ++position)
                if (!push({make(batches[std::size_t(position)], epoch, position), nullptr})) return;
            if (!push({})) return;
        }
    } catch (...) {
        push({std::nullopt, std::current_exception()});
    }
}

DataLoader::Item DataLoader::take() {
    if (options_.prefetch == 0) {
        if (planned_epoch_ != epoch_) planned_ = plan(epoch_), planned_epoch_ = epoch_;
        if (position_ >= std::int64_t(planned_.size())) return {};
        return {make(planned_[std::size_t(position_)], epoch_, position_), nullptr};
    }
    if (!worker_.joinable()) {
        ThreadState state = thread_state();
        state.frame = nullptr;  // lives on the caller's stack, which the worker outlasts
        worker_ = std::thread([this, epoch = epoch_, position = position_, state] { work(epoch, position, state); });
    }
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return !queue_.empty(); });
    Item item = std::move(queue_.front());
    queue_.pop_front();
    emptied_.notify_one();
    return item;
}

std::optional<Batch> DataLoader::next() {
    const auto start = std::chrono::steady_clock::now();
    Item item = take();
    last_wait_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    wait_ += last_wait_;
    if (item.error) {
        stop();
        std::rethrow_exception(item.error);
    }
    if (item.batch)
        ++position_;
    else
        ++epoch_, position_ = 0;
    return std::move(item.batch);
}

void DataLoader::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    emptied_.notify_all();
    if (worker_.joinable()) worker_.join();
    worker_ = {};
    queue_.clear();
    stopping_ = false;
}

void DataLoader::seek(std::int64_t epoch, std::int64_t position) {
    check(epoch >= 0, "data: the epoch must be 0 or more: got ", epoch);
    const std::int64_t epoch_before = std::exchange(epoch_, epoch);
    const std::int64_t count = batches();
    if (position < 0 || position > count) {
        epoch_ = epoch_before;
        fail("data: epoch ", epoch, " has ", count, " batches: there is no position ", position);
    }
    stop();
    position_ = position;
}

void DataLoader::save(Values& values, const std::string& name) const {
    values[name + ".epoch"] = epoch_;
    values[name + ".position"] = position_;
    values[name + ".batches"] = batches();
    values[name + ".samples"] = size_;
    values[name + ".seed"] = std::to_string(options_.seed);
    values[name + ".order"] = std::string(options_.plan ? "planned" : options_.shuffle ? "shuffled" : "plain");
}

void DataLoader::load(const Values& values, const std::string& name) {
    Values own;
    save(own, name);
    const auto same = [&](const char* what, auto wanted, auto got) {
        check(wanted == got, "data: the saved position belongs to other data: ", what, " was ", got, ", is ", wanted);
    };
    same("the number of samples", size_, integer_at(values, name + ".samples"));
    same("the seed", text_at(own, name + ".seed"), text_at(values, name + ".seed"));
    same("the order", text_at(own, name + ".order"), text_at(values, name + ".order"));
    const std::int64_t epoch = integer_at(values, name + ".epoch");
    check(epoch >= 0, "data: the saved epoch is ", epoch, ", expected 0 or more");
    const std::int64_t epoch_before = std::exchange(epoch_, epoch);
    const std::int64_t count = batches();
    epoch_ = epoch_before;
    same("the number of batches", count, integer_at(values, name + ".batches"));
    seek(epoch, integer_at(values, name + ".position"));
}

}  // namespace gradus
