#include "gradus/examples/translate/corpus.h"

#include "gradus/examples/common/files.h"
#include "gradus/examples/common/process.h"
#include "gradus/examples/common/test_support.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;
namespace fs = std::filesystem;

namespace {

// A whole preparation without network, root or Python.
class FakeTools : public FakePrograms {
  public:
    FakeTools() {
        add("apt-get", fake_download);
        add("dpkg", "echo \"$2\" > \"$3/list\"\n");
    }
    void python(const std::string& train) {
        const std::string mkdir = "while [ \"$1\" != -o ]; do shift; done\n/bin/mkdir -p \"$2\"\n";
        add("python3", mkdir + "printf '" + train + "' > \"$2/train.tsv\"\nprintf 'v\\tV\\n' > \"$2/valid.tsv\"\n" +
                           "printf 't\\tT\\n' > \"$2/test.tsv\"\n");
    }
};

int64_t entries(const fs::path& folder) { return std::distance(fs::directory_iterator(folder), {}); }

}  // namespace

TEST_CASE("lines become pairs, and a bad line is named", "[examples][corpus]") {
    const auto pairs = parse_pairs("你好\tHello there\n再见\tBye \"now\"\n", "f.tsv");
    REQUIRE(pairs.size() == 2);
    CHECK(pairs[0].source == "你好");
    CHECK(pairs[0].target == "Hello there");
    CHECK(pairs[1].target == "Bye \"now\"");
    CHECK(parse_pairs("", "f.tsv").empty());
    const auto error = [](std::string text) { return error_of([&] { parse_pairs("a\tb\n" + text, "f.tsv"); }); };
    CHECK(contains(error("no tab\n"), "f.tsv, line 2: no tab"));
    CHECK(contains(error("a\tb\tc\n"), "line 2: more than one tab"));
    CHECK(contains(error("\tb\n"), "line 2: one side is empty"));
    CHECK(contains(error("a\t\n"), "line 2: one side is empty"));
    CHECK(contains(error("\n"), "line 2: no tab"));
    CHECK(contains(error("a\tb\xff\n"), "line 2: not UTF-8"));
    CHECK(contains(error(std::string("a\tb\0c\n", 6)), "line 2: not UTF-8"));
    CHECK(contains(error("a\tb"), "line 2: the last line has no end"));
}

TEST_CASE("a corpus folder needs all three parts with pairs in them", "[examples][corpus]") {
    const TemporaryFolder folder;
    write_file(folder.path() / "train.tsv", "a\tA\nb\tB\n");
    write_file(folder.path() / "valid.tsv", "c\tC\n");
    CHECK(contains(error_of([&] { read_corpus(folder.path()); }), "test.tsv: No such file"));
    write_file(folder.path() / "test.tsv", "");
    CHECK(contains(error_of([&] { read_corpus(folder.path()); }), "the corpus is empty"));
    write_file(folder.path() / "test.tsv", "d\tD\n");
    const Corpus corpus = read_corpus(folder.path());
    CHECK(corpus.train.size() == 2);
    CHECK(corpus.valid[0].source == "c");
    CHECK(corpus.test[0].target == "D");
}

TEST_CASE("the corpus is prepared once, and anew for a changed script", "[examples][corpus]") {
    const TemporaryFolder cache;
    const fs::path script = cache.path() / "extract_pairs.py";
    write_file(script, "first");
    FakeTools tools;
    tools.python("a\\tA\\n");
    std::string news;
    const Message message = [&](const std::string& line) { news += line + "\n"; };
    CHECK(load_corpus(CorpusKind::small, cache.path(), script, message).train[0].target == "A");
    CHECK(contains(news, "downloading libreoffice-help-en-us\n"));
    CHECK(contains(news, "extracting sentence pairs\n"));
    CHECK(entries(cache.path() / "corpus") == 1);
    CHECK(entries(cache.path() / "deb") == 3);

    news.clear();
    tools.python("b\\tB\\n");
    CHECK(load_corpus(CorpusKind::small, cache.path(), script, message).train[0].target == "A");
    CHECK(news.empty());
    write_file(script, "second");
    CHECK(load_corpus(CorpusKind::small, cache.path(), script, message).train[0].target == "B");
    CHECK_FALSE(contains(news, "downloading"));
    CHECK(entries(cache.path() / "corpus") == 1);
    CHECK(load_corpus(CorpusKind::full, cache.path(), script, message).train[0].target == "B");
    CHECK(entries(cache.path() / "deb") == 6);
}

TEST_CASE("a preparation that fails leaves no corpus behind", "[examples][corpus]") {
    const TemporaryFolder cache;
    const fs::path script = cache.path() / "extract_pairs.py";
    write_file(script, "x");
    FakeTools tools;
    const auto error = [&] { return error_of([&] { load_corpus(CorpusKind::small, cache.path(), script, {}); }); };
    CHECK(contains(error(), "there is no python3"));
    tools.add("python3", "echo 'ModuleNotFoundError: No module named html' >&2; exit 1\n");
    CHECK(contains(error(), "run `apt-get install python3`. extract_pairs.py said: ModuleNotFoundError"));
    tools.add("python3", "kill -INT $$\n");
    CHECK(contains(error(), "interrupted by signal 2"));
    tools.python("");
    CHECK(contains(error(), "the corpus is empty"));
    tools.python("broken line\\n");
    CHECK(contains(error(), "line 1: no tab"));
    CHECK(entries(cache.path() / "corpus") == 0);
    CHECK(contains(error_of([&] { load_corpus(CorpusKind::small, cache.path(), cache.path() / "none.py", {}); }),
                   "none.py"));
    tools.python("a\\tA\\n");
    CHECK(load_corpus(CorpusKind::small, cache.path(), script, {}).train.size() == 1);
}
