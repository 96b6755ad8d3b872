#include <doctest/doctest.h>

#include "tests/structure/include_rules.h"
#include "tests/structure/tree.h"

using namespace tapeformer::test;

namespace {

// Returns the problems of a file that contains only `line`, with one problem per line.
std::string problem_of(const std::string& path, const std::string& line) {
  return joined(include_problems({path, line + "\n"}, tree()));
}

std::vector<SourceFile> sources() {
  std::vector<SourceFile> files;
  for (const SourceFile& file : tree())
    if (!file.path.starts_with("tests/")) files.push_back(file);
  return files;
}

// Includes between folders that folder_cycles() ignores. The folders core and core/cuda include each other,
// because core calls the CUDA backend. The folders ops and ops/detail include each other, because the shared
// functions in ops/detail call ops.
const std::vector<FolderInclude> kFolderCycles = {{"core", "core/cuda"}, {"ops/detail", "ops"}};

}  // namespace

TEST_CASE("includes follow the order of the folders, and third-party headers stay in their folders") {
  REQUIRE(tree().size() > 100);
  std::string problems;
  for (const SourceFile& file : tree()) problems += joined(include_problems(file, tree()));
  CHECK(problems == "");
}

TEST_CASE("units of a header and its source file do not include each other in a cycle") {
  CHECK(joined(unit_cycles(tree())) == "");
}

TEST_CASE("folders do not include each other in a cycle") {
  CHECK(joined(folder_cycles(sources(), kFolderCycles)) == "");
}

TEST_CASE("public headers do not include internal headers") {
  std::string problems;
  for (const SourceFile& file : tree()) problems += joined(internal_problems(file, tree()));
  CHECK(problems == "");
}

TEST_CASE("control: wrong includes are found") {
  CHECK(problem_of("core/x.cpp", "#include \"autograd/tape.h\"") ==
        "core/x.cpp:1: includes autograd/tape.h: core/ must not include autograd/\n");
  CHECK(problem_of("autograd/x.h", "#include \"ops/linear.h\"") != "");
  CHECK(problem_of("ops/x.cpp", "  #  include \"models/layers/module.h\"") != "");
  CHECK(problem_of("ops/kernels/x.h", "#include \"ops/linear.h\"") != "");
  CHECK(problem_of("ops/cpu/x.cpp", "#include \"autograd/tape.h\"") != "");
  CHECK(problem_of("data/x.cpp", "#include \"ops/linear.h\"") != "");
  CHECK(problem_of("models/x.cpp", "#include \"train/config/config.h\"") != "");
  CHECK(problem_of("train/x.cpp", "#include \"tests/support/random.h\"") != "");
  CHECK(problem_of("ops/x.cpp", "#include \"linear.h\"") ==
        "ops/x.cpp:1: includes linear.h: there is no such file\n");
  CHECK(problem_of("ops/linear.cpp", "#include <cuda_runtime.h>") ==
        "ops/linear.cpp:1: includes cuda_runtime.h: belongs only in core/cuda/, ops/cuda/\n");
  CHECK(problem_of("train/x.cpp", "#include <spdlog/spdlog.h>") != "");
  CHECK(problem_of("core/x.cpp", "#include <toml++/toml.h>") != "");
  CHECK(problem_of("train/config/config.h", "#include <toml++/toml.h>") ==
        "train/config/config.h:1: includes toml++/toml.h: belongs in source files, not in headers\n");
}

TEST_CASE("control: correct includes are accepted") {
  CHECK(problem_of("core/x.cpp", "#include \"core/tensor.h\"") == "");
  CHECK(problem_of("ops/x.cpp", "#include \"ops/kernels/linear.h\"") == "");
  CHECK(problem_of("ops/cuda/x.cu", "#include <cuda_runtime.h>") == "");
  CHECK(problem_of("train/x.cpp", "#include <toml++/toml.h>") == "");
  CHECK(problem_of("core/x.cpp", "#include <vector>") == "");
  CHECK(problem_of("core/x.cpp", "// #include \"autograd/tape.h\"") == "");
}

TEST_CASE("control: includes against the order of the folders of train are found") {
  CHECK(problem_of("train/bench/x.cpp", "#include \"train/cli/commands.h\"") ==
        "train/bench/x.cpp:1: includes train/cli/commands.h: train/bench/ must not include train/cli/\n");
  CHECK(problem_of("train/reproduce/x.cpp", "#include \"train/cli/commands.h\"") != "");
  CHECK(problem_of("train/bench/x.cpp", "#include \"train/reproduce/reproduce.h\"") != "");
  CHECK(problem_of("train/config/x.cpp", "#include \"train/loop/trainer.h\"") != "");
  CHECK(problem_of("train/checkpoint/x.cpp", "#include \"train/tasks/task.h\"") != "");
  CHECK(problem_of("train/tasks/x.cpp", "#include \"train/loop/trainer.h\"") != "");
  CHECK(problem_of("train/x.cpp", "#include \"train/checkpoint/state.h\"") != "");
  CHECK(problem_of("train/x.cpp", "#include \"train/loop/trainer.h\"") != "");
  CHECK(problem_of("train/x.cpp", "#include \"train/bench/bench.h\"") != "");
  CHECK(problem_of("ops/x.cpp", "#include \"ops/cpu/microkernel.h\"") != "");
  CHECK(problem_of("train/cli/x.cpp", "#include \"train/bench/bench.h\"") == "");
  CHECK(problem_of("train/reproduce/x.cpp", "#include \"train/bench/bench.h\"") == "");
  CHECK(problem_of("train/x.cpp", "#include \"train/config/config.h\"") == "");
}

TEST_CASE("control: cycles and internal headers are found") {
  const std::vector<SourceFile> files = {{"a.h", "#include \"b.h\"\n"},
                                         {"b.h", "#include \"c.h\"\n#include <a.h>\n"},
                                         {"c.h", "// Internal to c.\n#pragma once\n"},
                                         {"c.cpp", "#include \"c.h\"\n#include \"a.h\"\n"},
                                         {"d.cpp", "#include \"d.cpp\"\n"}};
  CHECK(joined(unit_cycles(files)) == "a -> b -> c -> a\n");
  CHECK(unit_cycles({files[0], files[1], files[2]}).empty());
  const std::vector<SourceFile> folders = {
      {"a/x.h", "#include \"b/y.h\"\n"}, {"b/y.h", ""}, {"b/z.cpp", "#include \"a/x.h\"\n"}};
  CHECK(joined(folder_cycles(folders, {})) == "a -> b -> a\n");
  CHECK(folder_cycles(folders, {{"b", "a"}}).empty());
  CHECK(joined(internal_problems(files[1], files)) == "b.h:1: includes c.h: is an internal header\n");
  CHECK(internal_problems(files[0], files).empty());
  CHECK(internal_problems(files[2], files).empty());
}
