#include "gradus/examples/vae/settings.h"

#include <cmath>

#include "gradus/core/error.h"

namespace gradus::examples {

namespace {

void check_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
    check(value >= low && value <= high, "vae: ", option, " must lie in [", low, ", ", high, "]: got ", value);
}

std::string shown(const Value& value) {
    return std::visit([](const auto& held) { return text(held); }, value);
}

}  // namespace

void check_settings(const VaeSettings& s) {
    check_range("--hidden", s.hidden, 1, 1 << 16);
    check_range("--latent", s.latent, 1, 1 << 12);
    check_range("--batch", s.batch, 1, 1 << 16);
    check_range("--epochs", s.epochs, 1, 1'000'000);
    check_range("--steps", s.steps, 0, 1'000'000'000);
    check(s.lr > 0 && std::isfinite(s.lr), "vae: --lr must be positive: got ", s.lr);
    check(!s.out.empty(), "vae: --out must name a folder");
}

void put_settings(Values& values, const VaeSettings& s) {
    values["run.example"] = std::string("vae");
    values["run.seed"] = std::to_string(s.seed);  // as a text: a seed may exceed 63 bits
    values["run.hidden"] = s.hidden, values["run.latent"] = s.latent;
    values["run.lr"] = s.lr, values["run.batch"] = s.batch;
}

void check_same_run(const Values& checkpoint, const VaeSettings& settings) {
    Values wanted;
    put_settings(wanted, settings);
    std::string differences;
    for (const auto& [name, value] : wanted) {
        const auto found = checkpoint.find(name);
        if (found != checkpoint.end() && found->second == value) continue;
        const std::string there = found == checkpoint.end() ? "absent" : shown(found->second);
        differences += text(differences.empty() ? "" : ", ", name, " is ", there, " there and ", shown(value), " now");
    }
    check(differences.empty(), "vae: --resume continues only the same run: ", differences,
          ": use the same options, or another --out");
}

}  // namespace gradus::examples
