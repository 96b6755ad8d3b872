#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/structure/doc_rules.h"
#include "tests/structure/source_rules.h"
#include "tests/structure/tree.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer::test;

namespace {

// Returns the standard output and standard error of a shell command as one text, and its status.
std::pair<std::string, int> output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  return {text, pclose(pipe)};
}

// Returns the name of clang-format 14, or "" if it is not installed. Other versions break lines differently.
std::string clang_format_14() {
  for (const std::string name : {"clang-format-14", "clang-format"})
    if (output_of(name + " --version").first.find("version 14.") != std::string::npos) return name;
  return "";
}

}  // namespace

TEST_CASE("no source file is longer than its limit") {
  std::string problems;
  for (const SourceFile& file : tree()) problems += joined(size_problems(file));
  CHECK(problems == "");
}

TEST_CASE("a CMakeLists.txt lists every source file") {
  std::string problems;
  for (const SourceFile& file : tree()) problems += joined(listing_problems(file, tree()));
  CHECK(problems == "");
}

// In ops and its backends, the base name of a file says where it belongs.
TEST_CASE("no folder outside ops and the tests has more than 25 files") {
  std::map<std::string, int> counts;
  for (const SourceFile& file : tree())
    if (!file.path.starts_with("ops/") && !file.path.starts_with("tests/"))
      ++counts[file.path.substr(0, file.path.find_last_of('/') + 1)];
  CHECK(counts.size() > 20);
  for (const auto& [folder, count] : counts) CHECK_MESSAGE(count <= 25, folder);
}

TEST_CASE("control: long and unlisted files are found") {
  const std::string line = "int x;\n";
  std::string text;
  for (int i = 0; i < 500; ++i) text += line;
  CHECK(size_problems({"core/x.cpp", text}).empty());
  CHECK(size_problems({"core/x.cpp", text + line}).size() == 1);
  CHECK(joined(listing_problems({"core/cpu/nowhere.cpp", line}, tree())) ==
        "core/cpu/nowhere.cpp:1: core/CMakeLists.txt does not list cpu/nowhere.cpp\n");
  CHECK(listing_problems({"core/cpu/nowhere.h", line}, tree()).empty());
}

TEST_CASE("sources follow .clang-format") {
  const std::string program = clang_format_14();
  if (program.empty()) {
    MESSAGE("skipped: clang-format 14 is not installed");
    return;
  }
  // Returns the files that clang-format would change, one per line.
  const auto unformatted = [&](const std::string& folder, const std::string& files) {
    return output_of("cd '" + folder + "' && " + program + " --style=file --dry-run" + files +
                     " 2>&1 | sed -n 's/:.*Wclang-format-violations.*//p' | uniq")
        .first;
  };
  std::string files;
  for (const SourceFile& file : tree())
    if (file.is_header() || file.path.ends_with(".cpp") || file.path.ends_with(".cu"))
      files += " " + file.path;
  CHECK(unformatted(SOURCE_DIR, files) == "");

  TempDir folder;
  write_file(folder / ".clang-format", read_file(SOURCE_DIR "/.clang-format"));
  write_file(folder / "bad.cpp", std::string("int  x ;\n"));
  CHECK(unformatted(folder.path().string(), " bad.cpp") == "bad.cpp\n");
}

TEST_CASE("shell scripts pass shellcheck") {
  if (output_of("shellcheck --version").second != 0) {
    MESSAGE("skipped: shellcheck is not installed");
    return;
  }
  const auto result =
      output_of("cd '" SOURCE_DIR "' && shellcheck .ci/run $(find scripts tests -name '*.sh')");
  CHECK_MESSAGE(result.second == 0, result.first);
}

TEST_CASE("links in the documentation point to files, and quoted code occurs in the tree") {
  const std::vector<SourceFile> documents = read_documents(SOURCE_DIR);
  REQUIRE(documents.size() >= 1);
  std::string problems;
  for (const SourceFile& document : documents) {
    problems += joined(link_problems(document, SOURCE_DIR));
    problems += joined(quotation_problems(document, SOURCE_DIR));
  }
  CHECK(problems == "");
}

TEST_CASE("control: broken links and false quotations are found") {
  const auto links = [](const std::string& text) {
    return joined(link_problems({"docs/x.md", text}, SOURCE_DIR));
  };
  CHECK(links("a\n[b](../nowhere.md)") == "docs/x.md:2: the link ../nowhere.md points to no file\n");
  CHECK(links("[b](../LICENSE) [c](https://example.org/x) [d](#here)") == "");

  const auto quotes = [](const std::string& text) {
    return joined(quotation_problems({"x.md", text}, SOURCE_DIR));
  };
  CHECK(quotes("```cpp core/batch.h\nstruct  Batch {\n…\nTensor labels = {};\n```\n") == "");
  CHECK(quotes("```cpp core/batch.h\nstruct Bunch {\n```\n") ==
        "x.md:1: core/batch.h does not contain: struct Bunch {\n");
  CHECK(quotes("text\n```cpp core/nowhere.h\n```\n") ==
        "x.md:2: quotes core/nowhere.h, which does not exist\n");
  CHECK(quotes("```cpp\nanything\n```\n") == "");
}

TEST_CASE("the Dockerfile gets its packages from the script, and the changelog begins with the version") {
  const std::string docker = read_file(SOURCE_DIR "/packaging/Dockerfile");
  CHECK(contains(
      docker,
      "RUN scripts/install-packages.sh && apt-get install -y --no-install-recommends dpkg-dev file\n"));
  const auto after = [](const std::string& text, const std::string& mark) {
    const size_t first = text.find(mark);
    REQUIRE(first != std::string::npos);
    return text.substr(first + mark.size(),
                       text.find_first_of(" ]", first + mark.size()) - first - mark.size());
  };
  CHECK(after(read_file(SOURCE_DIR "/CHANGELOG.md"), "\n## [") ==
        after(read_file(SOURCE_DIR "/CMakeLists.txt"), "project(tapeformer VERSION "));
}
