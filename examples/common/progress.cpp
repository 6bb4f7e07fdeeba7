#include "gradus/examples/common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace gradus::examples {

namespace {

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The first `columns` characters, counting one column for each UTF-8 character.
std::string clip(const std::string& text, int64_t columns) {
    int64_t used = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool starts_character = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
        if (starts_character && ++used > columns) return text.substr(0, i);
    }
    return text;
}

}  // namespace

std::string format_duration(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) return "?";
    char buffer[32];
    if (seconds < 9.95) {
        std::snprintf(buffer, sizeof buffer, "%.1fs", seconds);
        return buffer;
    }
    const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e15)));
    const long long minutes = whole / 60, hours = minutes / 60, days = hours / 24;
    if (minutes == 0) {
        std::snprintf(buffer, sizeof buffer, "%llds", whole);
    } else if (hours == 0) {
        std::snprintf(buffer, sizeof buffer, "%lldm%02llds", minutes, whole % 60);
    } else if (days == 0) {
        std::snprintf(buffer, sizeof buffer, "%lldh%02lldm", hours, minutes % 60);
    } else {
        std::snprintf(buffer, sizeof buffer, "%lldd%02lldh", days, hours % 24);
    }
    return buffer;
}

std::string format_count(double count) {
    static constexpr const char* units[] = {"", "k", "M", "G", "T", "P", "E"};
    if (!std::isfinite(count)) return "?";
    size_t unit = 0;
    double value = std::abs(count);
    // 999.5 would be printed as 1000: it belongs to the next unit.
    while (value >= 999.5 && unit + 1 < std::size(units)) value /= 1000, ++unit;
    const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%s%.*f%s", count < 0 ? "-" : "", decimals, value, units[unit]);
    return buffer;
}

ProgressStyle detect_progress_style(int descriptor) {
    ProgressStyle style;
    const char* terminal = std::getenv("TERM");
    style.redraw =
        ::isatty(descriptor) == 1 && terminal != nullptr && *terminal && std::string_view(terminal) != "dumb";
    const char* no_colour = std::getenv("NO_COLOR");
    style.colour = style.redraw && (no_colour == nullptr || *no_colour == '\0');
    winsize size{};
    if (style.redraw && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.columns = size.ws_col;
    return style;
}

Progress::Progress(std::string title)
    : Progress(std::move(title), std::cerr, detect_progress_style(STDERR_FILENO), steady_seconds) {}

Progress::Progress(std::string title, std::ostream& out, ProgressStyle style, Clock clock)
    : title_(std::move(title)), out_(out), style_(style), clock_(std::move(clock)), start_(clock_()), last_(start_) {}

Progress::~Progress() {
    if (visible_) out_ << "\n" << std::flush;
}

double Progress::eta() const {
    const int64_t made = done_ - std::max<int64_t>(first_, 0);
    if (total_ <= 0 || made <= 0) return -1;
    return (clock_() - start_) / static_cast<double>(made) * static_cast<double>(std::max<int64_t>(total_ - done_, 0));
}

void Progress::update(int64_t done, int64_t total, const std::string& text) {
    // A resumed task does not begin at 0; the pace counts from where this run began.
    if (first_ < 0) first_ = done > 0 ? done - 1 : 0;
    done_ = done;
    total_ = total;
    text_ = text;
    pending_ = true;
    const double wait = style_.redraw ? 0.1 : style_.interval;
    if (!drawn_ || clock_() - last_ >= wait || (total > 0 && done >= total)) draw();
}

std::string Progress::line() const {
    std::string out = title_ + " " + std::to_string(done_);
    if (total_ > 0) {
        out += "/" + std::to_string(total_);
        if (done_ < total_ && eta() >= 0) out += " ETA " + format_duration(eta());
    }
    if (total_ <= 0 || done_ >= total_) out += " in " + format_duration(clock_() - start_);
    if (!text_.empty()) out += "  " + text_;
    return out;
}

void Progress::draw() {
    last_ = clock_();
    drawn_ = true;
    pending_ = false;
    if (!style_.redraw) {
        out_ << line() << "\n" << std::flush;
        return;
    }
    constexpr int64_t bar_cells = 16;
    // The last column stays free: writing into it moves the cursor to the next line on some terminals.
    int64_t room = std::max<int64_t>(style_.columns - 1, 1);
    out_ << "\r\x1b[2K";
    if (total_ > 0 && room >= 60) {
        const double part = std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
        const auto full = static_cast<int64_t>(part * bar_cells);
        if (style_.colour) out_ << "\x1b[36m";
        for (int64_t i = 0; i < full; ++i) out_ << "█";
        if (style_.colour) out_ << "\x1b[90m";
        for (int64_t i = full; i < bar_cells; ++i) out_ << "░";
        if (style_.colour) out_ << "\x1b[0m";
        out_ << " ";
        room -= bar_cells + 1;
    }
    out_ << clip(line(), room) << std::flush;
    visible_ = true;
}

void Progress::erase() {
    if (visible_) out_ << "\r\x1b[2K";
    visible_ = false;
}

void Progress::note(const std::string& text) {
    const bool redraw = visible_;
    erase();
    out_ << text << "\n";
    if (redraw) draw();
    out_ << std::flush;
}

void Progress::finish() {
    if (pending_) draw();
    if (visible_) out_ << "\n" << std::flush;
    visible_ = false;
}

}  // namespace gradus::examples
