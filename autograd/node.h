// The tape: how an op notes its rule, and how gradients are asked for.
//
// Note [How a rule is written]
// An op computes y, then says for each operand what to do with g = dL/dy:
//     return record("matmul", y, wrt(a, [b = saved(b)](const Tensor& g) { return matmul(g, transpose(b())); }),
//                                wrt(b, [a = saved(a)](const Tensor& g) { return matmul(transpose(a()), g); }));
// A rule may take the result too: wrt(x, [](const Tensor& g, const Tensor& y) { return g * y; }). The capture list is
// exactly what backward keeps; an operand that wants no gradient drops its rule at once. Rules are made of ops, so a
// gradient can be differentiated again; a rule made of a fused kernel calls `first_order_only(op)` first. `record`
// returns a new handle, so the graph has no cycles: nodes hold their operands' pasts, tensors hold their node.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "gradus/core/tensor.h"
#include "gradus/core/thread_state.h"

namespace gradus {

// ---- for users ----

/// Makes x a leaf that wants a gradient (or not). Floating dtypes; x must not be the result of a recorded op.
const Tensor& require_grad(const Tensor& x, bool wanted = true);

struct BackwardOptions {
    bool retain_graph = false;  ///< keep what the rules saved, so that backward may run again
    bool create_graph = false;  ///< record the backward pass itself, for gradients of gradients; implies retain_graph.
                                ///< A leaf's gradient then holds the graph that holds the leaf: zero_grad ends that;
                                ///< `gradients` never begins it
};
/// Accumulates dL/dx into every leaf x that L depends on. L has one element, or `gradient` (of L's shape) is what it
/// starts from.
void backward(const Tensor& loss, const Tensor& gradient = {}, BackwardOptions options = {});
/// dy/dx for each x, leaves' own gradients untouched, their hooks not called; an x that y does not depend on gives an
/// undefined tensor.
std::vector<Tensor> gradients(const Tensor& y, const std::vector<Tensor>& xs, BackwardOptions options = {},
                              const Tensor& gradient = {});

/// Puts `value` (another device, dtype or arena slice, same shape) behind leaf x and all its handles; identity and
/// hooks stay, the gradient goes along.
void move_leaf(const Tensor& x, const Tensor& value);
void zero_grad(const Tensor& leaf);  ///< forgets the leaf's gradient
void assign_grad(const Tensor& leaf,
                 const Tensor& gradient);  ///< puts a gradient in place, as a collective or a test does
using Hook = std::function<void(const Tensor& gradient)>;
/// Called with x's whole gradient as soon as its last consumer is done: for a leaf after it was accumulated.
void on_grad(const Tensor& x, Hook hook);

inline bool grad_enabled() { return thread_state().grad_mode; }
/// While one lives on this thread nothing is recorded (or, for EnableGrad, it is again).
class GradMode {
  public:
    explicit GradMode(bool enabled) : before_(thread_state().grad_mode) { thread_state().grad_mode = enabled; }
    ~GradMode() { thread_state().grad_mode = before_; }
    GradMode(const GradMode&) = delete;
    GradMode& operator=(const GradMode&) = delete;

  private:
    bool before_;
};
struct NoGrad : GradMode {
    NoGrad() : GradMode(false) {}
};
struct EnableGrad : GradMode {
    EnableGrad() : GradMode(true) {}
};

// ---- for ops ----

/// Inside a rule: will what the node has saved be dropped when the rule returns? Not where the graph is kept or
/// recorded.
bool runs_last();

/// A tensor kept for backward. Reading it throws when it was modified in place meanwhile.
class Saved {
  public:
    Saved() = default;
    explicit Saved(const Tensor& x) : tensor_(x) {
        if (x.defined()) storage_ = Ref<Storage>(&x.storage()), version_ = x.version();
    }
    const Tensor& operator()() const {
        if (storage_ && (&tensor_.storage() != storage_.get() || storage_->version() != version_)) [[unlikely]]
            modified();
        return tensor_;
    }

    /// Inside a rule: is nobody else left who could read the elements? Then the rule may write its result over them.
    bool last_owner() const {
        return runs_last() && tensor_.use_count() == 1 && storage_ && storage_->use_count() == 2;
    }

  private:
    [[noreturn]] void modified() const;
    Tensor tensor_;
    Ref<Storage> storage_;  ///< held, so that a handle whose storage was exchanged is noticed
    std::uint32_t version_ = 0;
};
inline Saved saved(const Tensor& x) { return Saved(x); }

struct Edge {
    Ref<Past> target;  ///< null: this operand wants no gradient
    int output = 0;
};

/// One recorded op. The engine (backward.cpp) reads edges and scratch; ops go through wrt and record.
class Node : public Past {
  public:
    Node(const char* name, int outputs) : op(name), outputs(outputs) {}
    Tensor gradient() const final;
    bool is_leaf() const final { return false; }
    virtual std::span<Edge> edges() = 0;
    /// From dL/dy of each output (undefined: none came) to dL/dx of each operand (left undefined where not wanted).
    virtual void pull(std::span<const Tensor> gradients, std::span<Tensor> operands) = 0;
    virtual void drop_saved() = 0;

    const char* const op;
    const int outputs;
    std::string where;  ///< the module's path at record time, in anomaly mode
    std::vector<std::pair<int, Hook>> hooks;
    bool dropped = false;

    // Scratch of one backward run.
    std::atomic<std::uint64_t> run = 0;
    int pending = 0;
    Tensor first_gradient;
    std::vector<Tensor> more_gradients;  ///< of outputs 1 and up

  protected:
    void dispose() override;  ///< without recursion: a chain of 10⁶ nodes is freed from a list
};

bool recording(const Tensor& x);  ///< would an op on x be noted?
[[noreturn]] void refuse_second_order(const char* op);
/// For a rule made of kernels: throws when the backward pass itself is being recorded.
inline void first_order_only(const char* op) {
    if (grad_enabled()) refuse_second_order(op);
}

template <class Rule>
struct Wrt {
    Edge edge;
    std::optional<Rule> rule;
};
/// "With respect to x": the rule that turns dL/dy into dL/dx. Dropped at once when x wants no gradient.
template <class Rule>
Wrt<Rule> wrt(const Tensor& x, Rule rule) {
    if (!x.defined() || !recording(x)) return {};
    return {{x.past(), x.output()}, std::optional<Rule>(std::move(rule))};
}

/// Anomaly mode: throws when x holds NaN or Inf, naming op, module and shape.
void check_finite(const char* op, const char* direction, const Tensor& x, const std::string& where);

namespace detail {

template <class Rule>
inline constexpr bool wants_result = std::is_invocable_v<Rule, const Tensor&, const Tensor&>;

template <class... Rules>
class RuleNode final : public Node, public SlabAllocated<RuleNode<Rules...>> {
  public:
    RuleNode(const char* name, const Tensor& y, Wrt<Rules>... operands)
        : Node(name, 1), edges_{std::move(operands.edge)...}, rules_(std::move(operands.rule)...) {
        const bool keep = std::apply([](const auto&... r) { return ((r && wants_result<Rules>) || ...); }, rules_);
        if (keep) result_ = Saved(y);
    }
    std::span<Edge> edges() override { return edges_; }
    void pull(std::span<const Tensor> gradients, std::span<Tensor> operands) override {
        Tensor y = result_();
        if (y.defined()) {
            y = y.without_past();
            if (grad_enabled()) y.attach(Ref<Past>(this));
        }
        std::size_t i = 0;
        std::apply(
            [&](const auto&... rule) {
                ((rule ? void(operands[i] = call(*rule, gradients[0], y)) : void(), ++i), ...);
            },
            rules_);
    }
    void drop_saved() override {
        std::apply([](auto&... rule) { (rule.reset(), ...); }, rules_);
        result_ = Saved();
    }

  private:
    template <class Rule>
    static Tensor call(const Rule& rule, const Tensor& g, const Tensor& y) {
        if constexpr (wants_result<Rule>)
            return rule(g, y);
        else
            return rule(g);
    }
    std::array<Edge, sizeof...(Rules)> edges_;
    std::tuple<std::optional<Rules>...> rules_;
    Saved result_;
};

template <class Rule>
class JointNode final : public Node, public SlabAllocated<JointNode<Rule>> {
  public:
    JointNode(const char* name, int outputs, std::vector<Edge> edges, Rule rule)
        : Node(name, outputs), edges_(std::move(edges)), rule_(std::move(rule)) {}
    std::span<Edge> edges() override { return edges_; }
    void pull(std::span<const Tensor> gradients, std::span<Tensor> operands) override {
        std::vector<Tensor> given = (*rule_)(gradients);
        for (std::size_t i = 0; i < operands.size(); ++i)
            if (edges_[i].target) operands[i] = std::move(given[i]);
    }
    void drop_saved() override { rule_.reset(); }

  private:
    std::vector<Edge> edges_;
    std::optional<Rule> rule_;
};

void note_where(Node& node);

}  // namespace detail

/// y's storage under a new handle with a past; y itself when no operand wants a gradient.
template <class... Rules>
Tensor record(const char* op, const Tensor& y, Wrt<Rules>... operands) {
    if (thread_state().anomaly) [[unlikely]]
        check_finite(op, "forward", y, {});
    if (!(operands.rule.has_value() || ...)) return y;
    Ref<Past> node(new detail::RuleNode<Rules...>(op, y, std::move(operands)...));
    if (thread_state().anomaly) [[unlikely]]
        detail::note_where(static_cast<Node&>(*node));
    Tensor out = y.without_past();
    out.attach(std::move(node));
    return out;
}

/// When one call yields all gradients: rule(span of dL/dy) -> vector of dL/dx in the order of xs; entries of operands
/// that want none are ignored. `wanted(i)` inside the rule is the caller's business: capture recording(x) where it
/// saves work.
template <class Rule>
std::vector<Tensor> record_joint(const char* op, const std::vector<Tensor>& ys, const std::vector<Tensor>& xs,
                                 Rule rule) {
    if (thread_state().anomaly) [[unlikely]]
        for (const Tensor& y : ys) check_finite(op, "forward", y, {});
    std::vector<Edge> edges;
    bool any = false;
    for (const Tensor& x : xs) {
        const bool wants = x.defined() && recording(x);
        edges.push_back(wants ? Edge{x.past(), x.output()} : Edge{});
        any = any || wants;
    }
    if (!any) return ys;
    Ref<Past> node(new detail::JointNode<Rule>(op, int(ys.size()), std::move(edges), std::move(rule)));
    if (thread_state().anomaly) [[unlikely]]
        detail::note_where(static_cast<Node&>(*node));
    std::vector<Tensor> outs;
    for (std::size_t i = 0; i < ys.size(); ++i) {
        outs.push_back(ys[i].without_past());
        outs.back().attach(node, int(i));
    }
    return outs;
}
template <class Rule>
Tensor record_joint(const char* op, const Tensor& y, const std::vector<Tensor>& xs, Rule rule) {
    return record_joint(op, std::vector<Tensor>{y}, xs, std::move(rule))[0];
}

}  // namespace gradus
