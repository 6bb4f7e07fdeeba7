// Collectives: what a group of ranks does together. One interface for every transport.
#pragma once

#include <string>

#include "gradus/core/error.h"
#include "gradus/core/tensor.h"

namespace gradus::parallel {

/// What several ranks' elements become. A mean is of floats only.
enum class Reduce { sum, mean, max };
std::string to_string(Reduce how);

// What may go wrong in a group. Every rank of it that waits gets one of these; none waits for ever.
struct GroupError : Error {
    using Error::Error;
};
/// Some rank did not come in time.
struct Timeout final : GroupError {
    using GroupError::GroupError;
};
/// The ranks did not ask for the same: another op, shape, dtype or root.
struct Mismatch final : GroupError {
    using GroupError::GroupError;
};
/// Another rank gave up, and says why.
struct Aborted final : GroupError {
    using GroupError::GroupError;
};

/// A rank's end of a group. Every rank calls the same collectives in the same order, with tensors of one shape and
/// dtype on its own device, contiguous; the number of elements may be 0 and need not divide by anything. The work is
/// given to the device's current stream in its order; on a card the host waits for the other ranks to come, not for the
/// work. The result has the same bits on every rank. One thread at a time.
class Communicator {
  public:
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    /// x = the ranks' x reduced, added up in the order of the ranks; sums in f32, f64 for f64, 16-bit floats round
    /// once.
    void all_reduce(const Tensor& x, Reduce how = Reduce::sum);
    void broadcast(const Tensor& x, int root = 0);  ///< x = the root's x
    /// all = the ranks' parts one after another: size() · part.numel() elements.
    void all_gather(const Tensor& part, const Tensor& all);
    /// part = this rank's share of the reduced `all`, which is cut as all_gather puts it together and stays as it is.
    void reduce_scatter(const Tensor& all, const Tensor& part, Reduce how = Reduce::sum);
    void barrier();  ///< returns when every rank has come

    /// Ends the group: every rank that waits, and every later call, throws Aborted with this text. From any thread.
    virtual void abort(const std::string& why) noexcept = 0;

  protected:
    Communicator() = default;
    virtual void do_all_reduce(const Tensor& x, Reduce how) = 0;
    virtual void do_broadcast(const Tensor& x, int root) = 0;
    virtual void do_all_gather(const Tensor& part, const Tensor& all) = 0;
    virtual void do_reduce_scatter(const Tensor& all, const Tensor& part, Reduce how) = 0;
    virtual void do_barrier() = 0;
};

}  // namespace gradus::parallel
