// The engine: count consumers, run what is ready, settle a leaf the moment its last consumer is done.
#include <unordered_map>

#include "gradus/autograd/leaf.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/pointwise.h"

namespace gradus {
namespace {

thread_local bool last_pass = false;

class LastPass {
  public:
    explicit LastPass(bool last) : before_(std::exchange(last_pass, last)) {}
    ~LastPass() { last_pass = before_; }
    LastPass(const LastPass&) = delete;
    LastPass& operator=(const LastPass&) = delete;

  private:
    bool before_;
};

struct LeafState {
    int pending = 0;
    Tensor gradient;
};

/// One backward pass over the graph behind a tensor. Its scratch lies in the nodes; the destructor cleans it, also
/// after an error.
class Run {
  public:
    explicit Run(BackwardOptions options) : options_(options) {
        static std::atomic<std::uint64_t> count = 0;
        id_ = ++count;
    }
    ~Run() {
        for (Node* node : visited_) {
            node->first_gradient = Tensor();
            node->more_gradients.clear();
            node->run.store(0, std::memory_order_release);
        }
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// Gradients of these go to the list instead of into leaves.
    void capture(const std::vector<Tensor>& xs, std::vector<Tensor>& into) {
        into_ = &into;
        for (std::size_t i = 0; i < xs.size(); ++i) captured_[{xs[i].past().get(), xs[i].output()}].push_back(i);
    }

    void start(const Tensor& y, Tensor g) {
        const GradMode mode(options_.create_graph);
        count_consumers(y.past().get());
        // y counts as one consumer of its own node, done right away.
        if (y.is_leaf()) {
            leaves_[static_cast<Leaf*>(y.past().get())].pending += 1;
        } else {
            static_cast<Node*>(y.past().get())->pending += 1;
        }
        deliver(Edge{y.past(), y.output()}, std::move(g), "backward");
        while (!ready_.empty()) {
            Node* node = ready_.back();
            ready_.pop_back();
            step(*node);
        }
    }

  private:
    struct Key {
        const Past* past;
        int output;
        bool operator==(const Key&) const = default;
    };
    struct HashKey {
        std::size_t operator()(const Key& key) const {
            return std::hash<const void*>()(key.past) + std::size_t(key.output);
        }
    };

    void enter(Node* node) {
        std::uint64_t free = 0;
        check(node->run.compare_exchange_strong(free, id_, std::memory_order_acq_rel), "backward: the graph behind ",
              node->op, " is being run backward already, by another thread or by the hook that called this");
        visited_.push_back(node);
        node->pending = 0;
        check(!node->dropped, "backward: the graph was freed by an earlier backward (at ", node->op,
              "): pass retain_graph = true to the first one to run it again");
    }

    void count_consumers(Past* root) {
        if (root->is_leaf()) return;
        std::vector<Node*> stack{static_cast<Node*>(root)};
        enter(stack.back());
        while (!stack.empty()) {
            Node* node = stack.back();
            stack.pop_back();
            for (const Edge& edge : node->edges()) {
                Past* target = edge.target.get();
                if (!target) continue;
                if (target->is_leaf()) {
                    ++leaves_[static_cast<Leaf*>(target)].pending;
                    continue;
                }
                Node* before = static_cast<Node*>(target);
                if (before->run.load(std::memory_order_relaxed) != id_) {
                    enter(before);
                    stack.push_back(before);
                }
                ++before->pending;
            }
        }
    }

    static void add_to(Tensor& sum, Tensor g) {
        if (!sum.defined()) {
            sum = std::move(g);
        } else if (!grad_enabled() && sum.use_count() == 1 && sum.storage().use_count() == 1 && sum.is_contiguous() &&
                   sum.shape() == g.shape()) {
            kernels::accumulate(g, sum);
        } else if (!grad_enabled() && g.use_count() == 1 && g.storage().use_count() == 1 && g.is_contiguous() &&
                   sum.shape() == g.shape()) {
            kernels::accumulate(sum, g);
            sum = std::move(g);
        } else {
            sum = add(sum, g);
        }
    }

    /// One consumer of the target is done; g may be undefined when it has nothing to give.
    void deliver(const Edge& edge, Tensor g, const char* op) {
        if (edge.target->is_leaf()) {
            Leaf* leaf = static_cast<Leaf*>(edge.target.get());
            LeafState& state = leaves_[leaf];
            if (g.defined()) {
                check(g.shape() == leaf->shape() && g.dtype() == leaf->dtype(), op, ": its rule gave a gradient of ",
                      g.shape(), " ", g.dtype(), " for a leaf of ", leaf->shape(), " ", leaf->dtype());
                add_to(state.gradient, std::move(g));
            }
            if (--state.pending == 0 && state.gradient.defined()) settle(leaf, std::move(state.gradient));
            return;
        }
        Node* node = static_cast<Node*>(edge.target.get());
        if (g.defined()) {
            if (edge.output == 0) {
                add_to(node->first_gradient, std::move(g));
            } else {
                node->more_gradients.resize(std::size_t(node->outputs - 1));
                add_to(node->more_gradients[std::size_t(edge.output - 1)], std::move(g));
            }
        }
        if (--node->pending == 0) ready_.push_back(node);
    }

    void settle(Leaf* leaf, Tensor g) {
        if (!into_) return leaf->accumulate(std::move(g));
        keep(leaf, 0, g);
    }

    void keep(const Past* past, int output, const Tensor& g) {
        const auto found = captured_.find({past, output});
        if (found == captured_.end()) return;
        for (const std::size_t i : found->second) (*into_)[i] = g;
    }

    void step(Node& node) {
        std::vector<Tensor> gradients;
        gradients.reserve(std::size_t(node.outputs));
        gradients.push_back(std::move(node.first_gradient));
        node.first_gradient = Tensor();
        for (int i = 1; i < node.outputs; ++i)
            gradients.push_back(std::size_t(i) <= node.more_gradients.size()
                                    ? std::move(node.more_gradients[std::size_t(i - 1)])
                                    : Tensor());
        node.more_gradients.clear();
        bool any = false;
        for (int i = 0; i < node.outputs; ++i) {
            const Tensor& g = gradients[std::size_t(i)];
            if (!g.defined()) continue;
            any = true;
            if (into_) keep(&node, i, g);
            for (const auto& [output, hook] : node.hooks)
                if (output == i) hook(g);
        }
        const std::span<Edge> edges = node.edges();
        std::vector<Tensor> operands(edges.size());
        const bool last = !options_.retain_graph && !options_.create_graph;
        const LastPass pass(last);
        if (any && thread_state().anomaly) [[unlikely]] {
            pull_checked(node, gradients, operands);
        } else if (any) {
            node.pull(gradients, operands);
        }
        gradients.clear();
        // What the rules saved goes before the gradients travel on, so that memory is free for the next op.
        if (last) {
            node.drop_saved();
            node.dropped = true;
        }
        for (std::size_t i = 0; i < edges.size(); ++i)
            if (edges[i].target) deliver(edges[i], std::move(operands[i]), node.op);
    }

    /// In anomaly mode: the ops that a rule is made of are not looked at one by one, what the rule yields is.
    static void pull_checked(Node& node, std::span<const Tensor> gradients, std::span<Tensor> operands) {
        {
            ThreadState state = thread_state();
            state.anomaly = false;
            const ThreadStateGuard guard(state);
            node.pull(gradients, operands);
        }
        for (const Tensor& g : operands) check_finite(node.op, "backward", g, node.where);
    }

    BackwardOptions options_;
    std::uint64_t id_;
    std::vector<Node*> visited_, ready_;
    std::unordered_map<Leaf*, LeafState> leaves_;
    std::unordered_map<Key, std::vector<std::size_t>, HashKey> captured_;
    std::vector<Tensor>* into_ = nullptr;
};

Tensor starting_gradient(const char* op, const Tensor& y, const Tensor& gradient) {
    check(y.requires_grad(), op, ": the tensor of shape ", y.shape(),
          " has no past: nothing it was computed from wants a gradient (or it was computed under NoGrad)");
    if (!gradient.defined()) {
        check(y.numel() == 1, op, ": a result of shape ", y.shape(),
              " needs a gradient to start from: reduce it to one element (sum, mean) or pass a tensor of its shape");
        return ones_like(y);
    }
    check(gradient.shape() == y.shape(), op, ": the gradient's shape ", gradient.shape(),
          " is not that of the result, ", y.shape());
    check(gradient.device() == y.device(), op, ": the gradient is on ", gradient.device(), ", the result on ",
          y.device());
    return gradient.dtype() == y.dtype() ? gradient : cast(gradient, y.dtype());
}

}  // namespace

bool runs_last() { return last_pass; }

void backward(const Tensor& loss, const Tensor& gradient, BackwardOptions options) {
    Tensor g = starting_gradient("backward", loss, gradient);
    const Ref<Past> keep_alive = loss.past();
    Run run(options);
    run.start(loss, std::move(g));
}

std::vector<Tensor> gradients(const Tensor& y, const std::vector<Tensor>& xs, BackwardOptions options,
                              const Tensor& gradient) {
    for (const Tensor& x : xs) check(x.requires_grad(), "gradients: an x of shape ", x.shape(), " wants no gradient");
    Tensor g = starting_gradient("gradients", y, gradient);
    std::vector<Tensor> found(xs.size());
    const Ref<Past> keep_alive = y.past();
    Run run(options);
    run.capture(xs, found);
    run.start(y, std::move(g));
    return found;
}

}  // namespace gradus
