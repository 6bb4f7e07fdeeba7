#include "gradus/parallel/scatter.h"

namespace gradus::parallel {

std::int64_t sample_count(const Batch& batch) {
    std::int64_t n = -1;
    std::string first;
    for (const auto& [name, tensor] : batch) {
        check(tensor.defined(), "scatter: ", Quoted{name}, " was never given a tensor");
        if (tensor.rank() == 0) continue;
        if (n < 0) n = tensor.size(0), first = name;
        check(tensor.size(0) == n, "scatter: ", Quoted{first}, " has ", n, " samples and ", Quoted{name}, " has ",
              tensor.size(0), " (shape ", tensor.shape(), "): axis 0 counts the samples");
    }
    check(n >= 0, "scatter: the batch has no tensor with axes, so no samples to share out");
    return n;
}

Batch shard(const Batch& batch, Share share, Device device) {
    Batch part;
    for (const auto& [name, tensor] : batch)
        part[name] = to(tensor.rank() == 0 ? tensor : slice(tensor, 0, share.begin, share.end), device);
    return part;
}

}  // namespace gradus::parallel
