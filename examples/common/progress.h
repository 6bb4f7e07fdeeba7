// A progress line on a stream: redrawn in place on a terminal, plain lines now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace gradus::examples {

/// A length of time in at most two units: "0.4s", "12s", "3m05s", "2h07m", "1d04h"; "?" if negative or not finite.
std::string format_duration(double seconds);

/// A count in three digits: "950", "12.3k", "4.56M".
std::string format_count(double count);

/// How progress is shown.
struct ProgressStyle {
    bool redraw = false;   // one line, redrawn (a terminal)
    bool colour = false;   // ANSI colours in it
    int64_t columns = 80;  // width of the terminal
    double interval = 10;  // seconds between plain lines; a redrawn line takes 0.1
};

/// The style for a file descriptor: redrawn on a terminal unless TERM is unset or "dumb"; coloured unless NO_COLOR is
/// set to anything but nothing.
ProgressStyle detect_progress_style(int descriptor);

/// Shows how far a task is. Not for use by several threads at once.
class Progress {
  public:
    using Clock = std::function<double()>;  // seconds from any origin, never falling

    /// Progress of a task called `title` on standard error.
    explicit Progress(std::string title);
    Progress(std::string title, std::ostream& out, ProgressStyle style, Clock clock);
    /// Ends a line that is still on the terminal.
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// `done` of `total` steps are made (total <= 0: unknown, so no bar and no ETA); `text` follows the numbers. Draws
    /// only if the interval has passed since the last line, or `done` reaches `total`.
    void update(int64_t done, int64_t total, const std::string& text);

    /// Prints a whole line; a redrawn line comes back below it.
    void note(const std::string& line);

    /// Ends the task: the last state is shown if it was not, and the line stays.
    void finish();

    /// The remaining seconds at the pace so far; negative if unknown.
    double eta() const;

  private:
    void draw();
    void erase();
    std::string line() const;

    std::string title_;
    std::ostream& out_;
    ProgressStyle style_;
    Clock clock_;
    double start_, last_;
    bool drawn_ = false;    // a line was ever drawn
    bool pending_ = false;  // the last state is not shown yet
    bool visible_ = false;  // a redrawn line stands at the cursor
    int64_t done_ = 0, first_ = -1, total_ = 0;
    std::string text_;
};

}  // namespace gradus::examples
