#include "gradus/autograd/node.h"

#include "gradus/autograd/leaf.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/pointwise.h"

namespace gradus {

bool recording(const Tensor& x) { return thread_state().grad_mode && x.requires_grad(); }

void Saved::modified() const {
    if (&tensor_.storage() != storage_.get())
        fail("backward: a tensor of shape ", tensor_.shape(),
             " that an op saved for its gradient was moved to other memory meanwhile: run backward before to() or "
             "loading");
    fail("backward: a tensor of shape ", tensor_.shape(),
         " that an op saved for its gradient was modified in place (version ", tensor_.version(), ", saved at ",
         version_, "): change it after backward, or save a clone");
}

Tensor Node::gradient() const { return {}; }

void Node::dispose() {
    // Freeing a node may free the nodes before it: those only join the list, and the outermost call works it off.
    static thread_local std::vector<Node*>* waiting = nullptr;
    if (waiting) {
        waiting->push_back(this);
        return;
    }
    std::vector<Node*> list{this};
    waiting = &list;
    while (!list.empty()) {
        Node* node = list.back();
        list.pop_back();
        delete node;
    }
    waiting = nullptr;
}

void refuse_second_order(const char* op) {
    fail(op,
         ": the gradient of this fused op cannot be differentiated again: use the composed ops, or create_graph = "
         "false");
}

void check_finite(const char* op, const char* direction, const Tensor& x, const std::string& where) {
    if (!x.defined() || !is_floating(x.dtype()) || kernels::all_finite(x)) return;
    fail("anomaly: ", op, " (", direction, ") gave NaN or Inf in a tensor of shape ", x.shape(),
         where.empty() ? std::string() : text(" in module ", where));
}

void detail::note_where(Node& node) {
    if (const Frame* frame = thread_state().frame) node.where = frame->path();
}

const Tensor& require_grad(const Tensor& x, bool wanted) {
    check(is_floating(x.dtype()), "require_grad: only floating tensors have gradients: got ", x.dtype());
    check(x.is_leaf(), "require_grad: the tensor is the result of a recorded op: use detach first");
    if (wanted != x.requires_grad())
        x.attach(wanted ? Ref<Past>(new Leaf(x.shape(), x.dtype(), x.device())) : Ref<Past>());
    return x;
}

namespace {

Leaf& leaf_of(const char* what, const Tensor& x) {
    check(x.requires_grad() && x.is_leaf(), what, ": needs a leaf that wants a gradient: call require_grad first");
    return static_cast<Leaf&>(*x.past());
}

}  // namespace

void move_leaf(const Tensor& x, const Tensor& value) {
    check(x.is_leaf() && x.shape() == value.shape(), "move_leaf: needs a leaf and a value of its shape: got ",
          x.shape(), " and ", value.shape());
    if (x.requires_grad()) leaf_of("move_leaf", x).move(value.dtype(), value.device());
    x.become(value);
}

void zero_grad(const Tensor& leaf) {
    if (leaf.requires_grad()) leaf_of("zero_grad", leaf).assign({});
}

void assign_grad(const Tensor& leaf, const Tensor& gradient) { leaf_of("assign_grad", leaf).assign(gradient); }

void on_grad(const Tensor& x, Hook hook) {
    check(x.requires_grad(), "on_grad: the tensor wants no gradient: call require_grad first");
    if (x.is_leaf())
        static_cast<Leaf&>(*x.past()).add_hook(std::move(hook));
    else
        static_cast<Node&>(*x.past()).hooks.emplace_back(x.output(), std::move(hook));
}

Tensor Leaf::gradient() const {
    const std::lock_guard lock(mutex_);
    return gradient_;
}

void Leaf::assign(Tensor gradient) {
    check(!gradient.defined() ||
              (gradient.shape() == shape_ && gradient.dtype() == dtype_ && gradient.device() == device_),
          "assign_grad: the gradient does not fit its leaf: expected ", shape_, " ", dtype_);
    const std::lock_guard lock(mutex_);
    gradient_ = std::move(gradient);
}

void Leaf::move(DType dtype, Device device) {
    const NoGrad scope;
    const std::lock_guard lock(mutex_);
    dtype_ = dtype, device_ = device;
    if (gradient_.defined()) gradient_ = to(cast(gradient_.without_past(), dtype), device);
}

void Leaf::add_hook(Hook hook) {
    const std::lock_guard lock(mutex_);
    hooks_.push_back(std::move(hook));
}

namespace {

/// Is this the only handle to the only tensor on its storage, without gaps? Only then may it be taken over or added to.
bool alone(const Tensor& x) { return x.use_count() == 1 && x.storage().use_count() == 1 && x.is_contiguous(); }

}  // namespace

void Leaf::accumulate(Tensor g) {
    std::vector<Hook> hooks;
    Tensor total;
    {
        const std::lock_guard lock(mutex_);
        if (!gradient_.defined()) {
            gradient_ = alone(g) ? std::move(g) : clone(g);
        } else if (!gradient_.requires_grad() && !g.requires_grad() && alone(gradient_)) {
            kernels::accumulate(g, gradient_);
            gradient_.storage().bump_version();
        } else {
            gradient_ = add(gradient_, g);
        }
        hooks = hooks_;
        total = gradient_;
    }
    for (const Hook& hook : hooks) hook(total);
}

}  // namespace gradus
