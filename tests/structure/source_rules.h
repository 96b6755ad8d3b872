// The rules of the source tree, as functions that tell what is wrong with one file: which folder may include
// which, where third-party headers may appear, how long a file may be.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tapeformer::test {

struct SourceFile {
  std::string path;  // from the root of the repository, with '/'
  std::string text;

  bool is_header() const { return path.ends_with(".h") || path.ends_with(".cuh"); }
};

// Every source file under the folders of the project: C++, CUDA, CMake, Python, shell.
std::vector<SourceFile> read_tree(const std::filesystem::path& root);

// Each problem is one line that begins with path:line. Quoted includes must name a file of `tree`.
std::vector<std::string> include_problems(const SourceFile& file, const std::vector<SourceFile>& tree);
std::vector<std::string> size_problems(const SourceFile& file);
// A .cpp or .cu file that the CMakeLists.txt above it does not list.
std::vector<std::string> listing_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

}  // namespace tapeformer::test
