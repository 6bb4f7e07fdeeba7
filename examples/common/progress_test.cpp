#include "gradus/examples/common/progress.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "gradus/examples/common/test_support.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;

TEST_CASE("durations and counts are short", "[examples][progress]") {
    CHECK(format_duration(0) == "0.0s");
    CHECK(format_duration(9.94) == "9.9s");
    CHECK(format_duration(9.96) == "10s");
    CHECK(format_duration(59.4) == "59s");
    CHECK(format_duration(59.6) == "1m00s");
    CHECK(format_duration(185) == "3m05s");
    CHECK(format_duration(7629) == "2h07m");
    CHECK(format_duration(100800) == "1d04h");
    CHECK(format_duration(-1) == "?");
    CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
    CHECK(format_count(0) == "0");
    CHECK(format_count(950) == "950");
    CHECK(format_count(999.6) == "1.00k");
    CHECK(format_count(12345) == "12.3k");
    CHECK(format_count(999600) == "1.00M");
    CHECK(format_count(4560000) == "4.56M");
    CHECK(format_count(-1500) == "-1.50k");
    CHECK(format_count(std::nan("")) == "?");
}

TEST_CASE("progress into a file is a plain line now and then", "[examples][progress]") {
    std::ostringstream out;
    double now = 100;
    Progress progress("train", out, {false, false, 80, 10}, [&] { return now; });
    for (int64_t step = 0; step <= 20; ++step) {
        progress.update(step, 100, "loss 1");
        now += 1;
    }
    // Drawn at once, then after 10 seconds each; 10 of 100 steps in 10 s leave 90 s.
    CHECK(out.str() ==
          "train 0/100  loss 1\n"
          "train 10/100 ETA 1m30s  loss 1\n"
          "train 20/100 ETA 1m20s  loss 1\n");
    progress.note("saved");
    now = 200;
    progress.update(100, 100, "loss 0");
    progress.finish();
    CHECK(contains(out.str(), "saved\ntrain 100/100 in 1m40s  loss 0\n"));
    CHECK_FALSE(contains(out.str(), "\x1b"));
}

TEST_CASE("the last state of an early end is shown, and a resumed run keeps its own pace", "[examples][progress]") {
    std::ostringstream out;
    double now = 0;
    Progress progress("p", out, {false, false, 80, 10}, [&] { return now; });
    now = 2;
    progress.update(901, 1000, "a");
    now = 4;
    progress.update(902, 1000, "b");
    CHECK(progress.eta() == 98 * 4 / 2.0);
    progress.finish();
    CHECK(out.str() == "p 901/1000 ETA 3m18s  a\np 902/1000 ETA 3m16s  b\n");
    progress.finish();
    CHECK(out.str().size() == 48);
}

TEST_CASE("progress on a terminal redraws one line within its width", "[examples][progress]") {
    std::ostringstream out;
    double now = 0;
    {
        Progress progress("t", out, {true, false, 70, 10}, [&] { return now; });
        progress.update(50, 100, std::string(200, 'x'));
        const std::string first = out.str();
        CHECK(first.rfind("\r\x1b[2K", 0) == 0);
        size_t columns = 0;
        for (const char c : first.substr(5)) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
        CHECK(columns == 69);
        CHECK(contains(first, "████████░░░░░░░░ t 50/100"));
        CHECK_FALSE(contains(first, "\n"));
        now = 0.05;
        progress.update(51, 100, "y");
        CHECK(out.str() == first);
        progress.note("hello");
        CHECK(contains(out.str(), "\r\x1b[2Khello\n\r\x1b[2K"));
        CHECK_FALSE(contains(out.str(), "\x1b[3"));
    }
    CHECK(out.str().back() == '\n');
    std::ostringstream coloured;
    Progress progress("t", coloured, {true, true, 70, 10}, [&] { return now; });
    progress.update(1, 2, "");
    CHECK(contains(coloured.str(), "\x1b[36m"));
    progress.finish();
}

TEST_CASE("the style follows the terminal, TERM and NO_COLOR", "[examples][progress]") {
    const int file = ::open("/dev/null", O_WRONLY);
    CHECK_FALSE(detect_progress_style(file).redraw);
    ::close(file);
    // A pseudo-terminal stands in for a real one; without /dev/ptmx there is none to ask.
    const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return;
    const int terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
    REQUIRE(terminal >= 0);
    {
        const Variable term("TERM", "xterm"), no_colour("NO_COLOR", std::nullopt);
        CHECK(detect_progress_style(terminal).redraw);
        CHECK(detect_progress_style(terminal).colour);
        const Variable plain("NO_COLOR", "1");
        CHECK(detect_progress_style(terminal).redraw);
        CHECK_FALSE(detect_progress_style(terminal).colour);
        const Variable dumb("TERM", "dumb");
        CHECK_FALSE(detect_progress_style(terminal).redraw);
    }
    ::close(terminal);
    ::close(master);
}
