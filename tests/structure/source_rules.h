// Rules for source files: a file must not be too long, and a CMakeLists.txt must list it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tapeformer::test {

struct SourceFile {
  std::string path;  // relative to the root of the repository, with '/'
  std::string text;

  bool is_header() const { return path.ends_with(".h") || path.ends_with(".cuh"); }
  bool is_code() const { return is_header() || path.ends_with(".cpp") || path.ends_with(".cu"); }
};

// Returns every C++, CUDA, CMake, Python and shell file in the folders of the project.
std::vector<SourceFile> read_tree(const std::filesystem::path& root);

// Each function below finds problems in a file and returns one line for each problem, which begins with
// "PATH:LINE: ".

// Finds files with too many lines.
std::vector<std::string> size_problems(const SourceFile& file);
// Finds .cpp and .cu files that the nearest CMakeLists.txt does not list.
std::vector<std::string> listing_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

}  // namespace tapeformer::test
