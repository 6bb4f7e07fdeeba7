// A collective among threads: each rank puts down what it has and waits until all have (a meeting), works on its share
// of the elements while nobody touches them, and waits again. Ranks on cards meet on the host and order their streams
// by events: no rank waits for a card.
#include "gradus/parallel/local.h"

#include <condition_variable>
#include <mutex>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/stream.h"

namespace gradus::parallel {
namespace {

/// What a rank asks of a collective; all ranks must ask for the same.
struct Request {
    const char* op = "barrier";
    Shape shape;
    DType dtype = DType::f32;
    std::string detail;  // the reduction, or the root

    bool operator==(const Request& other) const {
        return std::string_view(op) == other.op && shape == other.shape && dtype == other.dtype &&
               detail == other.detail;
    }
    std::string text() const {
        return gradus::text(op, detail.empty() ? "" : " (" + detail + ")", " of ", shape, " ", dtype);
    }
};

/// What lies on the table during a collective.
struct Place {
    Request request;
    Tensor given, wanted;
    Event ready;                  ///< after this rank's work that wrote `given`
    std::vector<Event> finished;  ///< of what this rank did in the memory of others, or read there
};

class Group {
  public:
    Group(int ranks, std::chrono::duration<double> timeout)
        : places_(std::size_t(ranks)), here_(std::size_t(ranks)), timeout_(timeout) {}

    int size() const { return int(places_.size()); }
    Place& place(int rank) { return places_[std::size_t(rank)]; }

    /// Returns when all ranks have come. What they ask for is compared where `compare` says so.
    void meet(int rank, const char* op, bool compare) {
        std::unique_lock lock(mutex_);
        raise_failure();
        here_[std::size_t(rank)] = true;
        if (++arrived_ == size()) {
            if (compare) compare_requests();
            arrived_ = 0;
            here_.assign(here_.size(), false);
            sequence_ += compare;
            ++meeting_;
            all_here_.notify_all();
        } else {
            const std::uint64_t mine = meeting_;
            // By the system's clock: ThreadSanitizer does not see a wait by the steady one.
            const auto limit = std::chrono::system_clock::now() +
                               std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout_);
            all_here_.wait_until(lock, limit, [&] { return meeting_ != mine || failed(); });
            if (meeting_ == mine && !failed()) {
                std::string missing;
                for (int r = 0; r < size(); ++r)
                    if (!here_[std::size_t(r)]) missing += text(missing.empty() ? "" : ", ", r);
                fail_with(Kind::timeout, text(op, " number ", sequence_, ": waited ", timeout_.count(), " s for rank ",
                                              missing, " of ", size()));
            }
        }
        raise_failure();
    }

    void abort(int rank, const std::string& why) {
        const std::lock_guard lock(mutex_);
        fail_with(Kind::aborted, text("rank ", rank, " of ", size(), " gave up: ", why));
    }

  private:
    enum class Kind { none, timeout, mismatch, aborted };

    bool failed() const { return kind_ != Kind::none; }
    void fail_with(Kind kind, const std::string& message) {
        if (failed()) return;  // the first cause is told
        kind_ = kind, message_ = message;
        all_here_.notify_all();
    }
    void raise_failure() const {
        switch (kind_) {
            case Kind::none:
                return;
            case Kind::timeout:
                throw Timeout(message_);
            case Kind::mismatch:
                throw Mismatch(message_);
            case Kind::aborted:
                throw Aborted(message_);
        }
    }
    void compare_requests() {
        for (int r = 1; r < size(); ++r)
            if (!(place(r).request == place(0).request))
                return fail_with(Kind::mismatch,
                                 text("collective number ", sequence_, ": rank 0 asks for ", place(0).request.text(),
                                      ", rank ", r, " for ", place(r).request.text()));
    }

    std::mutex mutex_;
    std::condition_variable all_here_;
    std::vector<Place> places_;
    std::vector<bool> here_;
    int arrived_ = 0;
    std::uint64_t meeting_ = 0, sequence_ = 0;
    std::chrono::duration<double> timeout_;
    Kind kind_ = Kind::none;
    std::string message_;
};

/// Elements [begin, end) of a contiguous tensor, as a vector.
Tensor part_of(const Tensor& x, std::int64_t begin, std::int64_t end) {
    return x.without_past().with_layout(Layout({end - begin}, {1}, x.layout().offset + begin));
}

class LocalCommunicator final : public Communicator {
  public:
    LocalCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return group_->size(); }
    void abort(const std::string& why) noexcept override {
        try {
            group_->abort(rank_, why);
        } catch (const std::exception&) {  // no memory for the text: the others time out
        }
    }

  protected:
    void do_all_reduce(const Tensor& x, Reduce how) override {
        if (size() == 1) return;
        collective({"all_reduce", x.shape(), x.dtype(), to_string(how)}, x, x, [&] {
            // Each rank reduces a share of the elements and writes it everywhere.
            const std::int64_t begin = x.numel() * rank_ / size(), end = x.numel() * (rank_ + 1) / size();
            if (begin == end) return;
            const Tensor share = reduced(begin, end, how, x.device());
            for (int r = 0; r < size(); ++r) copy(r, part_of(group_->place(r).wanted, begin, end), share);
        });
    }
    void do_broadcast(const Tensor& x, int root) override {
        if (size() == 1) return;
        collective({"broadcast", x.shape(), x.dtype(), text("from rank ", root)}, x, x, [&] {
            if (rank_ != root) copy(root, x, group_->place(root).given);
        });
    }
    void do_all_gather(const Tensor& part, const Tensor& all) override {
        collective({"all_gather", part.shape(), part.dtype(), {}}, part, all, [&] {
            for (int r = 0; r < size(); ++r) {
                const Tensor& given = group_->place(r).given;
                copy(r, part_of(all, r * given.numel(), (r + 1) * given.numel()), given);
            }
        });
    }
    void do_reduce_scatter(const Tensor& all, const Tensor& part, Reduce how) override {
        collective({"reduce_scatter", all.shape(), all.dtype(), to_string(how)}, all, part, [&] {
            const std::int64_t n = part.numel();
            if (n > 0) copy_(part_of(part, 0, n), reduced(rank_ * n, (rank_ + 1) * n, how, part.device()));
            for (int r = 0; r < size(); ++r) note(r);
        });
    }
    void do_barrier() override {
        group_->place(rank_).request = {};
        group_->meet(rank_, "barrier", true);
    }

  private:
    template <class Work>
    void collective(Request request, const Tensor& given, const Tensor& wanted, const Work& work) {
        const NoGrad no_grad;
        const char* op = request.op;
        Place& mine = group_->place(rank_);
        mine.request = std::move(request);
        mine.given = given, mine.wanted = wanted;
        mine.ready.record(Stream::current(given.device()));
        mine.finished.assign(std::size_t(size()), Event());
        group_->meet(rank_, op, true);
        for (int r = 0; r < size(); ++r) {  // this thread's streams, of every device it will touch, come after all
            const Device device = group_->place(r).given.device();
            for (int other = 0; other < size(); ++other) group_->place(other).ready.wait(Stream::current(device));
        }
        try {
            work();
        } catch (const std::exception& error) {
            abort(error.what());
            throw;
        }
        group_->meet(rank_, op, false);
        // What the others did with this rank's memory comes before whatever this rank does next.
        for (int r = 0; r < size(); ++r)
            group_->place(r).finished[std::size_t(rank_)].wait(Stream::current(given.device()));
        group_->meet(rank_, op, false);
        mine.given = mine.wanted = {};
    }

    /// Elements of all ranks' `given`, reduced in the order of the ranks.
    Tensor reduced(std::int64_t begin, std::int64_t end, Reduce how, Device device) {
        const DType dtype = group_->place(rank_).given.dtype();
        const bool half = dtype == DType::bf16 || dtype == DType::f16;
        Tensor sum;
        for (int r = 0; r < size(); ++r) {
            Tensor x = to(part_of(group_->place(r).given, begin, end), device);
            if (half) x = cast(x, DType::f32);
            sum = r == 0 ? x : how == Reduce::max ? maximum(sum, x) : add(sum, x);
        }
        if (how == Reduce::mean) sum = mul(sum, 1.0 / size());
        return sum.dtype() == dtype ? sum : cast(sum, dtype);
    }

    /// A copy to or from what rank r has put down.
    void copy(int r, const Tensor& target, const Tensor& values) {
        copy_(target, values);
        note(r);
    }
    /// Rank r must wait for what this thread has given to the streams so far.
    void note(int r) {
        const Tensor& theirs = group_->place(r).given;
        const Device mine = group_->place(rank_).given.device();
        if (mine != theirs.device()) {  // what reads theirs runs on this rank's card
            Event here;
            here.record(Stream::current(mine));
            here.wait(Stream::current(theirs.device()));
        }
        Event done;
        done.record(Stream::current(theirs.device()));
        group_->place(rank_).finished[std::size_t(r)] = done;
    }

    std::shared_ptr<Group> group_;
    int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> local_group(int ranks, const LocalOptions& options) {
    check(ranks >= 1, "local_group: needs at least one rank: got ", ranks);
    check(options.timeout.count() > 0, "local_group: the timeout must be positive: got ", options.timeout.count());
    const auto group = std::make_shared<Group>(ranks, options.timeout);
    std::vector<std::unique_ptr<Communicator>> all;
    for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<LocalCommunicator>(group, r));
    return all;
}

}  // namespace gradus::parallel
