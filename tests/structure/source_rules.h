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

// Checks that the file does not have too many lines. Returns one message for each problem. A message begins
// with "PATH:LINE: ".
std::vector<std::string> size_problems(const SourceFile& file);
// If the file is a .cpp or .cu file, checks that the nearest CMakeLists.txt in `tree` lists it. Returns one
// message for each problem. A message begins with "PATH:LINE: ".
std::vector<std::string> listing_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

}  // namespace tapeformer::test
