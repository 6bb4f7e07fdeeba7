// The reader behind ./run kernels: the figures of ptxas, and the names of kernels.
#include <sstream>

#include "gradus/tests/support.h"
#include "gradus/tools/ptxas_report.h"

using namespace gradus::tools;

TEST_CASE("what ptxas says of a kernel becomes a row", "[tools]") {
    std::istringstream in(
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function "
        "'_ZN6gradus7kernels4cuda12_GLOBAL__N_114softmax_kernelIfLi4EEEvPKfPfl' "
        "for 'sm_90'\n"
        "ptxas info    : Function properties for _ZN6gradus7kernels4cuda12_GLOBAL__N_114softmax_kernelIfLi4EEEvPKfPfl\n"
        "    24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 24 bytes cumulative stack size, 4352 bytes smem, 376 "
        "bytes "
        "cmem[0]\n"
        "ptxas info    : Compile time = 9.663 ms\n"
        "ptxas info    : Compiling entry function '_Z5plainPf' for 'sm_80'\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 8 registers, 360 bytes cmem[0]\n"
        "ptxas info    : Function properties for helper\n"
        "    64 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n");
    const std::vector<KernelFigures> rows = read_ptxas(in);
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].name == "softmax_kernel<float, 4>");
    CHECK(without_arguments(rows[0].name) == "softmax_kernel");
    CHECK(rows[0].architecture == "sm_90");
    CHECK(rows[0].registers == 40);
    CHECK(rows[0].stack == 24);
    CHECK(rows[0].spill_stores == 8);
    CHECK(rows[0].spill_loads == 12);
    CHECK(rows[0].shared == 4352);
    CHECK(rows[0].barriers == 1);
    CHECK(rows[0].leaves_registers());
    CHECK(rows[1].name == "plain");
    CHECK(rows[1].architecture == "sm_80");
    CHECK(rows[1].shared == 0);
    CHECK_FALSE(rows[1].leaves_registers());
}

TEST_CASE("registers bound the warps of a multiprocessor", "[tools]") {
    KernelFigures kernel;
    // NVIDIA's occupancy tables: 32 registers a thread allow all 64 warps, 64 allow 32, 128 allow 16, 255 allow 8.
    for (const auto& [registers, warps] : {std::pair{32L, 64L}, {40L, 48L}, {64L, 32L}, {128L, 16L}, {255L, 8L}}) {
        kernel.registers = registers;
        CHECK(kernel.warps_by_registers() == warps);
    }
}
