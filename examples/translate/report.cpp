#include "gradus/examples/translate/report.h"

#include <sstream>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/common/svg.h"
#include "gradus/examples/translate/batches.h"

namespace gradus::examples {

std::string History::text() const {
    std::string out;
    for (std::size_t i = 0; i < step.size(); ++i) out += gradus::text("t ", step[i], " ", loss[i], "\n");
    for (std::size_t i = 0; i < valid_step.size(); ++i)
        out += gradus::text("v ", valid_step[i], " ", valid_loss[i], " ", valid_bleu[i], "\n");
    return out;
}

History History::parse(const std::string& text) {
    History history;
    std::istringstream in(text);
    for (std::string kind; in >> kind;) {
        double a = 0, b = 0, c = 0;
        if (kind == "t" && in >> a >> b) {
            history.step.push_back(a), history.loss.push_back(b);
        } else if (kind == "v" && in >> a >> b >> c) {
            history.valid_step.push_back(a), history.valid_loss.push_back(b), history.valid_bleu.push_back(c);
        } else {
            fail("checkpoint: its history is malformed near \"", kind, "\"");
        }
    }
    return history;
}

void write_curves(const std::filesystem::path& path, const History& history, const std::string& title) {
    LineChart chart;
    chart.title = title;
    chart.x_label = "steps", chart.y_label = "loss (nats a piece)", chart.second_label = "BLEU";
    chart.series = {{"training loss", history.step, history.loss, false},
                    {"validation loss", history.valid_step, history.valid_loss, false},
                    {"validation BLEU (greedy)", history.valid_step, history.valid_bleu, true}};
    write_file(path, render(chart));
}

void write_attention(const std::filesystem::path& path, const Transformer& model, const Tokenizer& source_pieces,
                     const Tokenizer& target_pieces, const std::vector<std::int64_t>& source,
                     const std::vector<std::int64_t>& target) {
    const NoGrad scope;
    const Device device = model.device();
    const auto row = [&](const std::vector<std::int64_t>& ids) {
        return to(Tensor::from(ids, {1, std::int64_t(ids.size())}, Device{}), device);
    };
    std::vector<std::int64_t> framed = frame_target(target);
    framed.pop_back();  // the model reads bos and all pieces, and writes all pieces and eos
    Tensor weights;
    model.decode(row(framed), model.encode(row(source)), &weights);
    const Tensor average = mean(weights, {1});  // (1, T, S)
    HeatMap map;
    map.title = "Where each written piece looked";
    map.row_title = "written", map.column_title = "read", map.scale_label = "attention";
    for (std::size_t i = 0; i < framed.size(); ++i)
        map.row_labels.push_back(i + 1 < framed.size() ? target_pieces.piece(framed[i + 1]) : "</s>");
    for (const std::int64_t id : source) map.column_labels.push_back(id == eos_id ? "</s>" : source_pieces.piece(id));
    map.values = average.to_vector<double>();
    write_file(path, render(map));
}

std::string samples(const std::vector<SentencePair>& pairs, const std::vector<std::string>& translations,
                    std::size_t count) {
    std::string out;
    // Spread over the set: neighbours resemble each other.
    const std::size_t n = std::min(pairs.size(), translations.size()), shown = std::min(count, n);
    for (std::size_t i = 0; i < shown; ++i) {
        const std::size_t at = i * n / shown;
        out += gradus::text(i + 1, ". source       ", pairs[at].source, "\n   reference    ", pairs[at].target,
                            "\n   translation  ", translations[at], "\n");
    }
    return out;
}

}  // namespace gradus::examples
