#include "tests/structure/source_rules.h"

#include <algorithm>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace tapeformer::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLines = 500;

const std::vector<std::string> kFolders = {"core",  "autograd", "ops",   "models",  "data",
                                           "train", "python",   "tests", "scripts", "cmake"};

bool is_source(const fs::path& path) {
  for (const char* extension : {".h", ".cpp", ".cu", ".cuh", ".cmake", ".py", ".sh"})
    if (path.extension() == extension) return true;
  return path.filename() == "CMakeLists.txt";
}

}  // namespace

std::vector<SourceFile> read_tree(const fs::path& root) {
  std::vector<SourceFile> files = {{"CMakeLists.txt", read_file(root / "CMakeLists.txt")}};
  for (const auto& folder : kFolders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() && is_source(entry.path()))
        files.push_back({fs::relative(entry.path(), root).generic_string(), read_file(entry.path())});
  }
  return files;
}

std::vector<std::string> size_problems(const SourceFile& file) {
  const auto lines = static_cast<size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
  if (lines <= kMaxLines) return {};
  return {file.path + ":1: " + std::to_string(lines) + " lines, more than " + std::to_string(kMaxLines) +
          ": split it by what its parts are for"};
}

std::vector<std::string> listing_problems(const SourceFile& file, const std::vector<SourceFile>& tree) {
  if (!file.path.ends_with(".cpp") && !file.path.ends_with(".cu")) return {};
  for (fs::path folder = fs::path(file.path).parent_path(); !folder.empty(); folder = folder.parent_path()) {
    const std::string lists = (folder / "CMakeLists.txt").generic_string();
    const auto found =
        std::find_if(tree.begin(), tree.end(), [&](const SourceFile& other) { return other.path == lists; });
    if (found == tree.end()) continue;
    const std::string name = fs::path(file.path).lexically_relative(folder).generic_string();
    std::istringstream words(found->text);
    for (std::string word; words >> word;)
      if (word == name || word == name + ")" || word.ends_with("/" + file.path)) return {};
    return {file.path + ":1: " + lists + " does not list " + name};
  }
  return {file.path + ":1: no CMakeLists.txt lists it"};
}

}  // namespace tapeformer::test
