// Runs another program without a shell.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gradus::examples {

/// How a program ended and what it printed.
struct ProcessResult {
    int exit_code = 0;   // 127 when the program was not found, 128 + n when signal n ended it
    bool found = true;   // false: there is no such program
    std::string output;  // standard output and standard error together
};

/// Runs arguments[0], looked up in PATH, in `folder` (empty: the current one) with standard input empty, messages in
/// English (LC_ALL=C.UTF-8), and waits. No shell sees the arguments. Throws gradus::Error when the system cannot start
/// any process.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::filesystem::path& folder = {});

/// The last `lines` lines that are not blank, joined by " | ".
std::string last_lines(const std::string& output, int lines);

}  // namespace gradus::examples
