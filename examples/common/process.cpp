#include "gradus/examples/common/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string_view>

#include "gradus/core/error.h"

extern char** environ;

namespace gradus::examples {

namespace {

std::vector<std::string> english_environment() {
    std::vector<std::string> variables{"LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"};
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view variable = *entry;
        if (variable.starts_with("LC_ALL=") || variable.starts_with("LANGUAGE=")) continue;
        if (!variable.starts_with("DEBIAN_FRONTEND=")) variables.emplace_back(variable);
    }
    return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> out;
    for (std::string& string : strings) out.push_back(string.data());
    out.push_back(nullptr);
    return out;
}

std::string drain(int file) {
    std::string bytes;
    char buffer[4096];
    for (;;) {
        const ssize_t count = ::read(file, buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return bytes;
        bytes.append(buffer, static_cast<size_t>(count));
    }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::filesystem::path& folder) {
    check(!arguments.empty(), "run_process: no program is named");
    std::vector<std::string> words = arguments, variables = english_environment();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot start ", words[0], ": pipe: ", std::strerror(errno));

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    // The child gets default signal behaviour, whatever this program blocks or ignores.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

    pid_t child = 0;
    const int code = ::posix_spawnp(&child, words[0].c_str(), &actions, &attributes, pointers(words).data(),
                                    pointers(variables).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (code != 0) {
        ::close(ends[0]);
        if (code == ENOENT && (folder.empty() || std::filesystem::is_directory(folder))) return {127, false, {}};
        fail("cannot start ", words[0], folder.empty() ? "" : " in ", folder.string(), ": ", std::strerror(code));
    }
    ProcessResult result;
    result.output = drain(ends[0]);
    ::close(ends[0]);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) fail("lost the process of ", words[0], ": ", std::strerror(errno));
    }
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

std::string last_lines(const std::string& output, int lines) {
    std::vector<std::string> kept;
    std::istringstream in(output);
    for (std::string line; std::getline(in, line);) {
        while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
        if (!line.empty()) kept.push_back(line);
    }
    const size_t count = kept.size(), wanted = static_cast<size_t>(lines);
    std::string out;
    for (size_t i = count > wanted ? count - wanted : 0; i < count; ++i) out += (out.empty() ? "" : " | ") + kept[i];
    return out.empty() ? "(it printed nothing)" : out;
}

}  // namespace gradus::examples
