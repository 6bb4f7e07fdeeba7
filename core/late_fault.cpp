#include "gradus/core/late_fault.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "gradus/core/error.h"
#include "gradus/core/stream.h"
#include "gradus/core/thread_state.h"
#include "gradus/core/transfer.h"

namespace gradus {
namespace {

struct Watched {
    Tensor answer;  // pinned
    Event arrived;
    DescribeFault describe;
    std::string where;
};

/// What a card has still to answer, in the order of the questions.
struct Watches {
    std::mutex mutex;
    std::deque<Watched> list;
    std::atomic<std::size_t> count = 0;
};
Watches& watches(Device device) {
    static Watches* all = new Watches[max_cards];  // outlives every thread
    return all[device.index];
}

}  // namespace

void watch(const Tensor& found, DescribeFault describe) {
    const Device device = found.device();
    check(device.kind == Device::cuda, "watch: only cards answer late: got ", device);
    tell_faults(device);  // a loop that never waits shall not gather questions without end
    Watched question;
    question.answer = Tensor::empty_pinned({2}, DType::i64);
    transfer_async(found, question.answer);
    question.arrived.record(Stream::current(device));
    question.describe = std::move(describe);
    if (const Frame* frame = thread_state().frame) question.where = frame->path();
    Watches& w = watches(device);
    const std::lock_guard lock(w.mutex);
    w.list.push_back(std::move(question));
    w.count = w.list.size();
}

void tell_faults(Device device) {
    if (device.kind == Device::cpu) return;
    Watches& w = watches(device);
    if (w.count.load(std::memory_order_relaxed) == 0) return;
    std::deque<Watched> faults;
    {
        const std::lock_guard lock(w.mutex);
        std::erase_if(w.list, [&](Watched& question) {  // of one stream they arrive in order, of several in any
            if (!question.arrived.reached()) return false;
            if (*question.answer.data<std::int64_t>() != -1) faults.push_back(std::move(question));
            return true;
        });
        w.count = w.list.size();
    }
    if (faults.empty()) return;
    const Watched& first = faults.front();
    const std::int64_t* answer = first.answer.data<std::int64_t>();
    std::string message = first.describe(answer[0], answer[1]);
    if (!first.where.empty()) message += " (in " + first.where + ")";
    throw Error(message);
}

}  // namespace gradus
