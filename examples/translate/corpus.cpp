#include "gradus/examples/translate/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <system_error>

#include "gradus/core/error.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/common/process.h"

namespace gradus::examples {

namespace fs = std::filesystem;

namespace {

constexpr const char* record_name = "prepared.txt";

// The packages of one source are unpacked into one folder; its name is the source's.
std::string source_of(const std::string& package) {
    return package.starts_with("libreoffice-help-") ? "libreoffice-help" : package;
}

std::string script_version(const fs::path& script) {
    const std::string bytes = read_file(script);
    const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
    return "script " + std::to_string(crc32_z(0, data, bytes.size())) + "\n";
}

bool is_prepared(const fs::path& folder, const std::string& version) {
    std::error_code error;
    return fs::is_regular_file(folder / record_name, error) && read_file(folder / record_name).starts_with(version);
}

void extract(const fs::path& script, const std::vector<fs::path>& sources, const fs::path& out) {
    std::vector<std::string> command{"python3", fs::absolute(script).string()};
    for (const fs::path& source : sources) command.push_back(source.string());
    command.insert(command.end(), {"-o", out.string()});
    const ProcessResult result = run_process(command);
    check(result.found, "cannot prepare the corpus: there is no python3; run `apt-get install python3`");
    check(result.exit_code < 128, "the preparation of the corpus was interrupted by signal ", result.exit_code - 128);
    if (result.exit_code == 0) return;
    const bool incomplete = result.output.find("ModuleNotFoundError") != std::string::npos;
    const bool full = result.output.find("No space left") != std::string::npos;
    fail("cannot prepare the corpus: ",
         incomplete ? "this python3 lacks a module of the standard library; run `apt-get install python3`. "
         : full     ? "the disk is full; free some space, or set XDG_CACHE_HOME to another disk. "
                    : "",
         script.filename().string(), " said: ", last_lines(result.output, 3));
}

void prepare(CorpusKind kind, const fs::path& cache, const fs::path& script, const std::string& version,
             const fs::path& target, const Message& message) {
    std::string record = version;
    std::vector<fs::path> packages;
    for (const std::string& name : corpus_packages(kind))
        packages.push_back(fetch_package(name, cache / "deb", message));

    make_folder(target.parent_path());
    const TemporaryFolder work(target.parent_path());
    std::vector<fs::path> sources;
    for (size_t i = 0; i < packages.size(); ++i) {
        const fs::path folder = work.path() / source_of(corpus_packages(kind)[i]);
        if (message) message("unpacking " + packages[i].filename().string());
        unpack_package(packages[i], folder);
        record += packages[i].filename().string() + "\n";
        if (std::find(sources.begin(), sources.end(), folder) == sources.end()) sources.push_back(folder);
    }
    if (message) message("extracting sentence pairs");
    const fs::path out = work.path() / "out";
    extract(script, sources, out);
    read_corpus(out);
    write_file(out / record_name, record);

    // A folder cannot replace a filled one: the outdated one moves into the work folder and goes with it.
    std::error_code error;
    fs::rename(target, work.path() / "outdated", error);
    fs::rename(out, target, error);
    // Another process may have published the same corpus meanwhile.
    check(!error || is_prepared(target, version), "cannot move the corpus to ", target.string(), ": ", error.message());
}

}  // namespace

std::string to_string(CorpusKind kind) { return kind == CorpusKind::small ? "small" : "full"; }

std::vector<std::string> corpus_packages(CorpusKind kind) {
    std::vector<std::string> names{"libreoffice-help-en-us", "libreoffice-help-zh-cn", "libreoffice-l10n-zh-cn"};
    if (kind == CorpusKind::full) names.insert(names.end(), {"cataclysm-dda-data", "krita-l10n", "digikam-data"});
    return names;
}

Corpus load_corpus(CorpusKind kind, const fs::path& cache, const fs::path& script, const Message& message) {
    const fs::path folder = cache / "corpus" / to_string(kind);
    const std::string version = script_version(script);
    if (!is_prepared(folder, version)) prepare(kind, cache, script, version, folder, message);
    return read_corpus(folder);
}

Corpus read_corpus(const fs::path& folder) {
    const auto part = [&](const char* name) {
        const fs::path file = folder / name;
        std::vector<SentencePair> pairs = parse_pairs(read_file(file), file.string());
        check(
            !pairs.empty(), "the corpus is empty: ", file.string(),
            " holds no sentence pair; the packages may be stripped of their translations (delete the cache folder and "
            "run this again)");
        return pairs;
    };
    return {part("train.tsv"), part("valid.tsv"), part("test.tsv")};
}

std::vector<SentencePair> parse_pairs(std::string_view text, const std::string& name) {
    std::vector<SentencePair> pairs;
    for (int64_t number = 1; !text.empty(); ++number) {
        const size_t end = text.find('\n');
        const auto bad = [&](const char* what) {
            fail(name, ", line ", number, ": ", what, "; delete the file's folder and run this again");
        };
        // A file cut short by a full disk ends inside a line.
        if (end == std::string_view::npos) bad("the last line has no end, so the file is cut short");
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        const size_t tab = line.find('\t');
        if (tab == std::string_view::npos) bad("no tab between the two sides");
        if (line.find('\t', tab + 1) != std::string_view::npos) bad("more than one tab");
        if (tab == 0 || tab + 1 == line.size()) bad("one side is empty");
        if (line.find('\0') != std::string_view::npos || !is_utf8(line)) bad("not UTF-8 text");
        pairs.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))});
    }
    return pairs;
}

}  // namespace gradus::examples
