#include "gradus/parallel/communicator.h"

#include "gradus/core/storage.h"

namespace gradus::parallel {
namespace {

void check_operand(const char* op, const Tensor& x) {
    check(x.defined(), op, ": the tensor is undefined");
    check(x.is_contiguous(), op, ": a tensor of shape ", x.shape(), " is not contiguous: make it so first");
}

void check_reduce(const char* op, const Tensor& x, Reduce how) {
    check(x.dtype() != DType::boolean, op, ": does not reduce bool");
    check(how != Reduce::mean || is_floating(x.dtype()), op, ": a mean of ", x.dtype(),
          " would be cut to an integer: add up, and divide where it is wanted");
}

void check_parts(const char* op, const Tensor& part, const Tensor& all, int ranks) {
    check(part.dtype() == all.dtype(), op, ": the part is ", part.dtype(), ", the whole ", all.dtype());
    check(part.device() == all.device(), op, ": the part is on ", part.device(), ", the whole on ", all.device());
    check(part.numel() * ranks == all.numel(), op, ": the whole needs ", ranks, " parts of ", part.shape(), ": got ",
          all.shape());
    check(part.numel() == 0 || &part.storage() != &all.storage(), op, ": the part lies in the memory of the whole");
}

}  // namespace

std::string to_string(Reduce how) { return how == Reduce::sum ? "sum" : how == Reduce::mean ? "mean" : "max"; }

void Communicator::all_reduce(const Tensor& x, Reduce how) {
    check_operand("all_reduce", x);
    check_reduce("all_reduce", x, how);
    do_all_reduce(x, how);
    x.storage().bump_version();
}

void Communicator::broadcast(const Tensor& x, int root) {
    check_operand("broadcast", x);
    check(root >= 0 && root < size(), "broadcast: there is no rank ", root, " among ", size());
    do_broadcast(x, root);
    if (rank() != root) x.storage().bump_version();
}

void Communicator::all_gather(const Tensor& part, const Tensor& all) {
    check_operand("all_gather", part), check_operand("all_gather", all);
    check_parts("all_gather", part, all, size());
    do_all_gather(part, all);
    all.storage().bump_version();
}

void Communicator::reduce_scatter(const Tensor& all, const Tensor& part, Reduce how) {
    check_operand("reduce_scatter", part), check_operand("reduce_scatter", all);
    check_parts("reduce_scatter", part, all, size());
    check_reduce("reduce_scatter", all, how);
    do_reduce_scatter(all, part, how);
    part.storage().bump_version();
}

void Communicator::barrier() { do_barrier(); }

}  // namespace gradus::parallel
