// Batches of a data set in a shuffled order, made ahead by a thread in the background.
#pragma once

#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "gradus/core/thread_state.h"
#include "gradus/nn/batch.h"

namespace gradus {

using Indices = std::vector<std::int64_t>;

/// The numbers 0 … n - 1 in an order that follows from (seed, epoch) alone, the same on every machine.
Indices shuffled(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

/// Anything that knows its size and makes a batch of some of its samples. `batch` runs in another thread.
template <class D>
concept Dataset = requires(const D& data, std::span<const std::int64_t> indices) {
    { data.size() } -> std::convertible_to<std::int64_t>;
    { data.batch(indices) } -> std::convertible_to<Batch>;
};

struct LoaderOptions {
    std::int64_t batch_size = 1;
    bool shuffle = true;
    bool drop_last = false;  ///< leave out a last batch that is smaller than the others
    std::uint64_t seed = 0;
    int prefetch = 2;  ///< batches made ahead; 0 makes each in the thread that asks for it
    /// Which samples form the batches of an epoch, where equal sizes will not do (batches by length, say). A pure
    /// function, called from several threads; batch_size, shuffle and drop_last then mean nothing.
    std::function<std::vector<Indices>(std::int64_t epoch)> plan = {};
};

/// while (true) { while (auto batch = loader.next()) train(*batch); }: next() gives an epoch's batches in order, then
/// once nothing, then those of the next epoch. An exception from the data set arrives in next(), which tries that batch
/// again when called again. Random ops in `batch` draw from a generator that follows from (seed, epoch, batch), so
/// neither threads nor a resume change them. One consumer; the data set must outlive the loader.
class DataLoader {
  public:
    using MakeBatch = std::function<Batch(std::span<const std::int64_t> indices)>;
    DataLoader(std::int64_t size, MakeBatch make, LoaderOptions options = {});
    template <Dataset D>
    explicit DataLoader(const D& data, LoaderOptions options = {})
        : DataLoader(
              std::int64_t(data.size()), [&data](std::span<const std::int64_t> i) { return Batch(data.batch(i)); },
              std::move(options)) {}
    ~DataLoader();
    DataLoader(const DataLoader&) = delete;
    DataLoader& operator=(const DataLoader&) = delete;

    std::optional<Batch> next();

    std::int64_t epoch() const { return epoch_; }        ///< of the batch that next() gives
    std::int64_t position() const { return position_; }  ///< how many of its batches were given
    std::int64_t batches() const;                        ///< of this epoch
    /// Continues with this batch of this epoch.
    void seek(std::int64_t epoch, std::int64_t position);

    double wait_seconds() const { return wait_; }            ///< how long next() kept its callers waiting, in all
    double last_wait_seconds() const { return last_wait_; }  ///< and in its last call

    void save(Values& values, const std::string& name = "data") const;
    /// Continues where `save` was called; throws when size, batch size, seed or order are not the same.
    void load(const Values& values, const std::string& name = "data");

  private:
    struct Item {
        std::optional<Batch> batch;  ///< nothing: the epoch is over
        std::exception_ptr error;
    };
    std::vector<Indices> plan(std::int64_t epoch) const;
    Batch make(const Indices& indices, std::int64_t epoch, std::int64_t position) const;
    Item take();
    void work(std::int64_t epoch, std::int64_t position, ThreadState state);
    bool push(Item item);
    void stop();

    const std::int64_t size_;
    const MakeBatch make_;
    const LoaderOptions options_;
    std::int64_t epoch_ = 0, position_ = 0;
    double wait_ = 0, last_wait_ = 0;
    mutable std::vector<Indices> planned_;  ///< of planned_epoch_, for the consumer
    mutable std::int64_t planned_epoch_ = -1;

    std::mutex mutex_;
    std::condition_variable filled_, emptied_;
    std::deque<Item> queue_;
    bool stopping_ = false;
    std::thread worker_;
};

}  // namespace gradus
