#include "gradus/examples/translate/decode.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"

namespace gradus::examples {
namespace {

struct Hypothesis {
    std::vector<std::int64_t> ids;
    double log_probability = 0;
};

/// One sentence's search: the hypotheses that still grow, in the rows of the cache, and the best that ended.
struct Search {
    std::int64_t sentence = 0, longest = 0;
    std::vector<Hypothesis> open;
    std::vector<std::int64_t> ended;
    double ended_score = -INFINITY;
    int ended_count = 0;
};

double score(double log_probability, std::int64_t length, double penalty) {
    return log_probability / std::pow(double(std::max<std::int64_t>(length, 1)), penalty);
}

struct Candidate {
    double log_probability;
    std::int64_t parent, id;
};

/// Takes one step of a sentence: which rows go on, and with which id. Ended hypotheses leave the beam.
std::vector<Candidate> advance(Search& search, const std::vector<Candidate>& ranked, const DecodeOptions& options,
                               std::int64_t length) {
    std::vector<Candidate> next;
    for (const Candidate& c : ranked) {
        if (int(next.size()) == options.beam) break;  // an end further down would not have survived either
        if (c.id == eos_id) {
            const double s = score(c.log_probability, length, options.length_penalty);
            ++search.ended_count;
            if (s > search.ended_score) search.ended_score = s, search.ended = search.open[std::size_t(c.parent)].ids;
        } else {
            next.push_back(c);
        }
    }
    const bool enough = search.ended_count >= options.beam;
    const bool hopeless = !next.empty() && search.ended_count > 0 &&
                          score(next[0].log_probability, search.longest, options.length_penalty) < search.ended_score;
    if (length >= search.longest || enough || hopeless) {
        if (search.ended_count == 0 && !next.empty()) {
            search.ended = search.open[std::size_t(next[0].parent)].ids;
            search.ended.push_back(next[0].id);
        }
        next.clear();
    }
    return next;
}

void decode_group(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sources,
                  const std::vector<std::int64_t>& group, const DecodeOptions& options,
                  std::vector<std::vector<std::int64_t>>& results) {
    std::int64_t widest = 1;
    for (const std::int64_t i : group) widest = std::max(widest, std::int64_t(sources[std::size_t(i)].size()));
    std::vector<std::int64_t> ids(group.size() * std::size_t(widest), pad_id);
    std::vector<Search> searches;
    const std::int64_t places = model.options().longest - 1;
    for (std::size_t r = 0; r < group.size(); ++r) {
        const std::vector<std::int64_t>& source = sources[std::size_t(group[r])];
        std::copy(source.begin(), source.end(), ids.begin() + std::ptrdiff_t(r) * widest);
        Search search;
        search.sentence = group[r];
        search.longest = std::min(places, std::int64_t(1.5 * double(source.size())) + 10);
        search.open = {Hypothesis{}};
        searches.push_back(std::move(search));
    }
    const Device device = model.device();
    DecoderCache cache =
        model.start(model.encode(to(Tensor::from(ids, {std::int64_t(group.size()), widest}, Device{}), device)));
    std::vector<std::int64_t> last(group.size(), bos_id);
    for (std::int64_t length = 1; !searches.empty(); ++length) {
        const Tensor logits =
            model.decode_step(to(Tensor::from(last, {std::int64_t(last.size()), 1}, Device{}), device), cache);
        const TopK best =
            topk(log_softmax(squeeze(logits, {1}), -1), std::min<std::int64_t>(2 * options.beam, logits.size(-1)));
        const std::vector<double> values = best.values.to_vector<double>();
        const std::vector<std::int64_t> tokens = best.indices.to_vector<std::int64_t>();
        const std::size_t k = std::size_t(best.values.size(-1));
        std::vector<std::int64_t> parents, owners_before, owners;
        std::vector<Search> still;
        last.clear();
        for (std::size_t s = 0, row = 0; s < searches.size(); ++s) {
            Search& search = searches[s];
            owners_before.insert(owners_before.end(), search.open.size(), search.sentence);
            std::vector<Candidate> ranked;
            for (std::size_t h = 0; h < search.open.size(); ++h)
                for (std::size_t j = 0; j < k; ++j)
                    ranked.push_back({search.open[h].log_probability + values[(row + h) * k + j], std::int64_t(h),
                                      tokens[(row + h) * k + j]});
            std::stable_sort(ranked.begin(), ranked.end(), [](const Candidate& a, const Candidate& b) {
                return a.log_probability > b.log_probability;
            });
            const std::vector<Candidate> next = advance(search, ranked, options, length);
            std::vector<Hypothesis> open;
            for (const Candidate& c : next) {
                Hypothesis h = search.open[std::size_t(c.parent)];
                h.ids.push_back(c.id), h.log_probability = c.log_probability;
                open.push_back(std::move(h));
                parents.push_back(std::int64_t(row) + c.parent);
                last.push_back(c.id);
                owners.push_back(search.sentence);
            }
            row += search.open.size();
            search.open = std::move(open);
            if (search.open.empty())
                results[std::size_t(search.sentence)] = std::move(search.ended);
            else
                still.push_back(std::move(search));
        }
        searches = std::move(still);
        if (!searches.empty()) cache.reorder(to(Tensor::from(parents, Device{}), device), owners == owners_before);
    }
}

}  // namespace

std::vector<std::vector<std::int64_t>> translate(const Transformer& model,
                                                 const std::vector<std::vector<std::int64_t>>& sources,
                                                 const DecodeOptions& options,
                                                 const std::function<bool(std::int64_t)>& done) {
    check(options.beam >= 1, "translate: the beam must be at least 1: got ", options.beam);
    const NoGrad scope;
    std::vector<std::int64_t> order(sources.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return sources[std::size_t(a)].size() < sources[std::size_t(b)].size();
    });
    std::vector<std::vector<std::int64_t>> results(sources.size());
    const std::size_t size = std::size_t(std::max<std::int64_t>(1, options.rows / options.beam));
    for (std::size_t at = 0; at < order.size(); at += size) {
        const std::size_t end = std::min(order.size(), at + size);
        decode_group(model, sources, {order.begin() + std::ptrdiff_t(at), order.begin() + std::ptrdiff_t(end)}, options,
                     results);
        if (done && !done(std::int64_t(end))) break;
    }
    return results;
}

}  // namespace gradus::examples
