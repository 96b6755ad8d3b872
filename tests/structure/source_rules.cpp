#include "tests/structure/source_rules.h"

#include <algorithm>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace tapeformer::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLines = 600;

const std::vector<std::string> kFolders = {"core",  "autograd", "ops",     "models", "data",
                                           "train", "tests",    "scripts", "cmake"};

// A folder, and the folders whose headers its files may include. A file belongs to the longest folder that
// its path begins with.
struct Floor {
  std::string folder;
  std::vector<std::string> may_include;
};

const std::vector<Floor> kFloors = {
    {"core/", {"core/"}},
    {"autograd/", {"core/", "autograd/"}},
    {"ops/kernels/", {"core/", "ops/kernels/"}},
    {"ops/cpu/", {"core/", "ops/kernels/", "ops/cpu/"}},
    {"ops/cuda/", {"core/", "ops/kernels/", "ops/cuda/"}},
    {"ops/", {"core/", "autograd/", "ops/kernels/", "ops/"}},
    {"data/", {"core/", "data/"}},
    {"models/", {"core/", "autograd/", "ops/", "models/"}},
    {"train/", {"core/", "autograd/", "ops/kernels/", "ops/", "models/", "data/", "train/"}},
    {"tests/",
     {"core/", "autograd/", "ops/kernels/", "ops/cpu/", "ops/cuda/", "ops/", "models/", "data/", "train/",
      "tests/"}},
};

// Third-party headers by their first letters, and where they may be included.
struct Vendor {
  std::string prefix;
  std::vector<std::string> where;
  bool in_headers = false;  // else only in source files, so that those who use ours need not have them
};

const std::vector<Vendor> kVendors = {
    {"cuda", {"core/cuda/", "ops/cuda/"}, true},
    {"cublas", {"core/cuda/", "ops/cuda/"}, true},
    {"spdlog/", {"train/cli/log.cpp"}},
    {"fmt/", {"train/reproduce/"}},
    {"toml++/", {"train/"}},
    {"cxxopts", {"train/"}},
    {"nlohmann/", {"train/", "tests/"}},
    {"zlib.h", {"data/", "tests/"}},
    {"png.h", {"data/", "tests/"}},
    {"curl/", {"data/"}},
    {"openssl/", {"data/"}},
    {"sndfile", {"data/", "tests/"}},
    {"samplerate", {"data/"}},
    {"kissfft/", {"data/"}},
    {"cblas.h", {"core/", "ops/cpu/"}},
    {"doctest/", {"tests/"}, true},
};

bool begins_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.starts_with(prefix); });
}

const Floor* floor_of(const std::string& path) {
  const Floor* best = nullptr;
  for (const Floor& floor : kFloors)
    if (path.starts_with(floor.folder) && (!best || floor.folder.size() > best->folder.size())) best = &floor;
  return best;
}

bool exists(const std::string& path, const std::vector<SourceFile>& tree) {
  return std::any_of(tree.begin(), tree.end(), [&](const SourceFile& file) { return file.path == path; });
}

// The word after #include with its delimiters, or "".
std::string included_by(const std::string& line) {
  std::istringstream words(line);
  std::string hash, name;
  words >> hash;
  if (hash == "#") {
    words >> name;
    hash += name;
  }
  if (hash != "#include") return "";
  words >> name;
  return name.size() > 2 ? name : "";
}

std::string quoted_problem(const std::string& path, const std::string& name,
                           const std::vector<SourceFile>& tree) {
  const Floor* from = floor_of(path);
  const Floor* to = floor_of(name);
  if (!exists(name, tree)) return "no file of this name from the root of the tree";
  if (!from || !to) return "outside of the folders of the project";
  const auto& allowed = from->may_include;
  if (std::find(allowed.begin(), allowed.end(), to->folder) == allowed.end())
    return from->folder + " must not include " + to->folder;
  return "";
}

std::string vendor_problem(const SourceFile& file, const std::string& name) {
  for (const Vendor& vendor : kVendors) {
    if (!name.starts_with(vendor.prefix)) continue;
    if (!begins_with_any(file.path, vendor.where)) {
      std::string places;
      for (const auto& place : vendor.where) places += (places.empty() ? "" : ", ") + place;
      return "belongs only in " + places;
    }
    if (file.is_header() && !vendor.in_headers && !file.path.starts_with("tests/"))
      return "belongs in source files, not in headers";
  }
  return "";
}

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

std::vector<std::string> include_problems(const SourceFile& file, const std::vector<SourceFile>& tree) {
  std::vector<std::string> problems;
  std::istringstream text(file.text);
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    const std::string include = included_by(line);
    if (include.empty()) continue;
    const std::string name = include.substr(1, include.find_last_of("\">") - 1);
    const std::string problem =
        include[0] == '"' ? quoted_problem(file.path, name, tree) : vendor_problem(file, name);
    if (!problem.empty())
      problems.push_back(file.path + ":" + std::to_string(number) + ": includes " + name + ": " + problem);
  }
  return problems;
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
