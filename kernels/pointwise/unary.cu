// Ops of one operand and what backward multiplies with.
#include <tuple>

#include "gradus/kernels/pointwise/pointwise.cuh"

namespace gradus::kernels::cuda {
namespace {

template <class Op>
struct Unary {
    template <class C>
    GRADUS_FN static C f(const C* x) {
        return Op::f(x[0]);
    }
};
template <class Op, int order>
struct Chain {
    template <class C>
    GRADUS_FN static C f(const C* x) {
        return pointwise::chain<Op, order>(x[0], x[1]);
    }
};

}  // namespace

template <class Op>
void unary(const Tensor& x, const Tensor& y) {
    const Operand inputs[] = {x};
    run<Unary<Op>, true, Op::integers>(inputs, y);
}

template <class Op, int order>
void chain(const Tensor& g, const Tensor& x, const Tensor& gx) {
    const Operand inputs[] = {g, x};
    run<Chain<Op, order>, order == 1, false>(inputs, gx);
}

namespace {

// Naming every function once makes the compiler emit it here, for all who only see the declarations.
template <class... Ops>
auto emit(pointwise::List<Ops...>) {
    return std::tuple{&unary<Ops>..., &chain<Ops, 1>..., &chain<Ops, 2>...};
}
[[gnu::used]] const auto emitted = emit(pointwise::UnaryOps());

}  // namespace
}  // namespace gradus::kernels::cuda
