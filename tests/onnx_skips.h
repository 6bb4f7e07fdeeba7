// The reviewed list of what the ONNX conformance test leaves out, each with its reason.
#pragma once

#include <string_view>
#include <vector>

namespace gradus::onnx {

/// What a rule looks at: the case's folder, the ops of its graph, the element types of what goes in and comes out, or
/// whether all of that are tensors.
enum class By { folder, op, type, kind };

/// A case is left out if it shows one of `names`. An op stands here or in the table of cases, never in both.
struct Skip {
    std::string_view category;
    std::string_view reason;
    By by;
    std::vector<std::string_view> names;
};

/// The number of folders in `node` of the release this list was reviewed against (ONNX 1.12, Debian 12). With that
/// release an op that nobody listed, and a rule that no case needs, are failures; with another they are reported.
inline constexpr int reviewed_cases = 932;
/// So many cases of it run; fewer means that some fell out unnoticed.
inline constexpr int reviewed_runs = 786;

inline const std::vector<Skip>& skips() {
    static const std::vector<Skip> list = {
        {"convolution and pooling",
         "Gradus has neither: its models are Transformers and multi-layer perceptrons",
         By::op,
         {"AveragePool", "Conv", "ConvTranspose", "MaxPool", "MaxUnpool"}},
        {"recurrent networks", "no recurrent layers", By::op, {"GRU", "LSTM", "RNN"}},
        {"quantisation",
         "no quantised arithmetic",
         By::op,
         {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
          "QuantizeLinear"}},
        {"images",
         "no resampling and no box ops",
         By::op,
         {"GridSample", "NonMaxSuppression", "Resize", "RoiAlign", "Upsample"}},
        {"control flow",
         "a graph inside a node: with Gradus that is C++ around the ops",
         By::op,
         {"If", "Loop", "Scan", "SequenceMap"}},
        {"sequence ops",
         "a list of tensors is a std::vector to Gradus, not a value of the graph",
         By::op,
         {"ConcatFromSequence", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct",
          "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence"}},
        {"sequence and optional values", "an input or output is not a tensor", By::kind, {"not a tensor"}},
        {"text", "tensors hold numbers", By::op, {"StringNormalizer", "TfIdfVectorizer"}},
        {"text tensors", "tensors hold numbers", By::type, {"string"}},
        {"integer types",
         "Gradus computes in i64, i32 and u8",
         By::type,
         {"int16", "int8", "uint16", "uint32", "uint64"}},
        {"spectra", "no complex numbers and no signal processing", By::op, {"DFT", "MelWeightMatrix", "STFT"}},
        {"bits", "no bitwise ops", By::op, {"BitShift"}},
        {"inverse trigonometry", "no op for it, and no exact way to compose it", By::op, {"Acos", "Asin", "Atan"}},
        {"shapes that depend on data",
         "every output shape of Gradus follows from the input shapes",
         By::op,
         {"Compress", "NonZero", "Unique"}},
        {"random values",
         "the expected values are one draw of another generator",
         By::op,
         {"Bernoulli", "RandomUniformLike"}},
        {"flawed data",
         "the outputs were computed with epsilon 0.01, which the model file does not state",
         By::folder,
         {"test_adam_multiple"}},
        {"determinants", "no matrix decompositions", By::op, {"Det"}},
    };
    return list;
}

}  // namespace gradus::onnx
