// Runs the op table on two cards: values against the reference loops, gradients against the CPU's.
#include <algorithm>

#include "gradus/tests/cards.h"
#include "gradus/tests/situation.h"

namespace gradus::tests {
namespace {

/// How many situations of the table were looked at; printed, because the documents quote it.
struct Count {
    const char* what;
    std::int64_t cases = 0;
    ~Count() { std::printf("op table on cards: %lld %s\n", static_cast<long long>(cases), what); }
};

TEST_CASE("op table on cards: values", "[cuda][ops]") {
    if (!have_cards(1)) return;
    Count count{"values (op x card x dtype x layout x size)"};
    const int last = std::min(device_count(Device::cuda), 2) - 1;
    for (int index = 0; index <= last; ++index) {
        const Device device = card(index);
        const auto check = [&](const Situation& s) {
            INFO(s.words());
            ++count.cases;
            check_value(s);
        };
        for_situations({DType::f32, DType::bf16}, check, device);
        if (index == last) for_situations({DType::f64, DType::f16, DType::i64, DType::i32}, check, device);
    }
}

TEST_CASE("op table on cards: gradients equal the CPU's", "[cuda][ops]") {
    if (!have_cards(1)) return;
    const Device device = card(std::min(device_count(Device::cuda), 2) - 1);
    Count count{"gradients (op x card x dtype x layout x size)"};
    for_situations(
        {DType::f32, DType::f64, DType::bf16},
        [&](const Situation& s) {
            if (!s.row.gradient || (size_of(s.dtype) == 2 && s.lay == Lay::expanded)) return;
            INFO(s.words());
            ++count.cases;
            Situation host = s;
            host.device = {};
            const Tensors got = gradients_of(s, s.bases()), wanted = gradients_of(host, host.bases());
            for (std::size_t i = 0; i < got.size(); ++i) {
                CHECK(got[i].defined() == wanted[i].defined());
                if (!got[i].defined() || !wanted[i].defined()) continue;
                CHECK(got[i].device() == s.device);
                CHECK(differs(got[i], wanted[i].to_vector<double>(),
                              gradient_tolerance(s.dtype, s.row.length * s.repeats())) == "");
            }
        },
        device);
}

}  // namespace
}  // namespace gradus::tests
