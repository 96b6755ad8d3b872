#include "tests/structure/include_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace tapeformer::test {
namespace {

using Names = std::vector<std::string>;

// A folder and its allowed includes. Files in the folder may include only files whose paths begin with a
// prefix in `may_include`. If a file is in several of the listed folders, the folder with the longest path
// applies.
struct Folder {
  std::string path;
  Names may_include;
};

const std::vector<Folder>& folders() {
  static const auto* const list = new std::vector<Folder>{
      {"core/", {"core/"}},
      {"autograd/", {"core/", "autograd/"}},
      {"ops/kernels/", {"core/", "ops/kernels/"}},
      {"ops/cpu/", {"core/", "ops/kernels/", "ops/cpu/"}},
      {"ops/cuda/", {"core/", "ops/kernels/", "ops/cuda/"}},
      {"ops/", {"core/", "autograd/", "ops/kernels/", "ops/"}},
      {"data/", {"core/", "data/"}},
      {"models/", {"core/", "autograd/", "ops/", "models/"}},
      {"train/optimization/", {"core/", "autograd/", "ops/", "train/optimization/"}},
      {"train/config/", {"core/", "data/", "models/", "train/optimization/", "train/config/"}},
      {"train/checkpoint/", {"core/", "data/", "models/", "train/config/", "train/", "train/checkpoint/"}},
      {"train/pretrained/",
       {"core/", "data/", "models/", "train/config/", "train/", "train/checkpoint/", "train/pretrained/"}},
      {"train/tasks/",
       {"core/", "autograd/", "ops/", "models/", "data/", "train/config/", "train/", "train/checkpoint/",
        "train/distributed/", "train/tasks/"}},
      {"train/distributed/", {"core/", "autograd/", "train/distributed/"}},
      {"train/loop/",
       {"core/", "autograd/", "models/", "train/config/", "train/", "train/checkpoint/", "train/distributed/",
        "train/tasks/", "train/loop/"}},
      {"train/bench/",
       {"core/", "autograd/", "ops/", "ops/kernels/", "models/", "data/", "train/config/", "train/",
        "train/checkpoint/", "train/distributed/", "train/tasks/", "train/loop/", "train/bench/"}},
      {"train/report/",
       {"core/", "autograd/", "ops/", "models/", "data/", "train/config/", "train/", "train/checkpoint/",
        "train/report/"}},
      {"train/reproduce/",
       {"core/", "autograd/", "ops/", "models/", "data/", "train/config/", "train/", "train/checkpoint/",
        "train/distributed/", "train/tasks/", "train/loop/", "train/bench/", "train/report/",
        "train/reproduce/"}},
      {"train/cli/",
       {"core/", "autograd/", "ops/", "models/", "data/", "train/config/", "train/", "train/checkpoint/",
        "train/pretrained/", "train/distributed/", "train/tasks/", "train/loop/", "train/bench/",
        "train/report/", "train/reproduce/", "train/cli/", "tests/attention/"}},
      {"train/",
       {"core/", "autograd/", "ops/", "models/", "data/", "train/config/", "train/distributed/", "train/"}},
      {"python/",
       {"core/", "autograd/", "ops/", "models/", "data/", "train/config/", "train/", "train/checkpoint/",
        "train/distributed/", "train/tasks/", "train/loop/", "train/cli/", "python/"}},
      {"tests/attention/", {"core/", "autograd/", "ops/", "models/", "tests/attention/"}},
      {"tests/", {"core/", "autograd/", "ops/", "models/", "data/", "train/", "tests/"}}};
  return *list;
}

// Returns the subfolders that `may_include` must name explicitly. For example, "ops/" does not allow
// "ops/cpu/".
const Names& closed_folders() {
  static const auto* const list = new Names{
      "ops/kernels/",      "ops/cpu/",           "ops/cuda/",    "train/config/", "train/checkpoint/",
      "train/pretrained/", "train/distributed/", "train/tasks/", "train/loop/",   "train/bench/",
      "train/report/",     "train/reproduce/",   "train/cli/"};
  return *list;
}

// A third-party library, and the files that may include it. `prefix` is the common prefix of the headers of
// the library. Only files whose paths begin with an element of `where` may include the headers of the
// library.
struct Vendor {
  std::string prefix;
  Names where;
  // Folders whose headers can include the library. In all other folders except tests/, only source files can
  // include it.
  Names headers = {};
};

const std::vector<Vendor>& vendors() {
  static const auto* const list = new std::vector<Vendor>{
      {"cuda", {"core/cuda/", "ops/cuda/"}, {"core/cuda/", "ops/cuda/"}},
      {"cublas", {"core/cuda/", "ops/cuda/"}, {"core/cuda/", "ops/cuda/"}},
      {"spdlog/", {"train/cli/log.cpp"}},
      {"fmt/", {"train/report/", "train/reproduce/"}},
      {"toml++/", {"train/"}},
      {"cxxopts", {"train/"}},
      {"nlohmann/",
       {"train/", "data/text/bpe/", "data/text/prompts/", "tests/"},
       {"train/reproduce/", "train/pretrained/", "data/text/bpe/"}},
      {"zlib.h", {"data/", "tests/"}},
      {"archive.h", {"data/files/"}},
      {"archive_entry.h", {"data/files/"}},
      {"png.h", {"data/", "tests/"}},
      {"curl/", {"data/"}},
      {"openssl/", {"data/"}},
      {"utf8proc.h", {"data/"}},
      {"sndfile", {"data/", "tests/"}},
      {"samplerate", {"data/"}},
      {"kissfft/", {"data/"}},
      {"cblas.h", {"core/", "ops/cpu/"}},
      {"mpi.h", {"train/distributed/"}},
      {"nccl.h", {"train/distributed/"}},
      {"nanobind/", {"python/src/"}, {"python/src/"}},
      {"doctest/", {"tests/"}, {"tests/"}},
  };
  return *list;
}

bool begins_with_any(const std::string& text, const Names& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.starts_with(prefix); });
}

const Folder* folder_of(const std::string& path) {
  const Folder* best = nullptr;
  for (const Folder& folder : folders())
    if (path.starts_with(folder.path) && (!best || folder.path.size() > best->path.size())) best = &folder;
  return best;
}

bool may_include(const Folder& from, const std::string& name) {
  std::string closed;
  for (const std::string& prefix : closed_folders())
    if (name.starts_with(prefix)) closed = prefix;
  if (from.path == "tests/") return begins_with_any(name, from.may_include);
  return std::any_of(from.may_include.begin(), from.may_include.end(), [&](const std::string& prefix) {
    return name.starts_with(prefix) && prefix.size() >= closed.size();
  });
}

const SourceFile* find_file(const std::string& path, const std::vector<SourceFile>& tree) {
  const auto found =
      std::find_if(tree.begin(), tree.end(), [&](const SourceFile& file) { return file.path == path; });
  return found == tree.end() ? nullptr : &*found;
}

// Returns the name after #include with its delimiters, or "" if the line includes nothing.
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

struct Include {
  int line = 0;
  bool quoted = false;
  std::string name;
};

std::vector<Include> includes_of(const SourceFile& file) {
  std::vector<Include> includes;
  std::istringstream text(file.text);
  std::string line;
  for (int number = 1; std::getline(text, line); ++number)
    if (const std::string word = included_by(line); !word.empty())
      includes.push_back({number, word[0] == '"', word.substr(1, word.find_last_of("\">") - 1)});
  return includes;
}

std::string location_of(const SourceFile& file, const Include& include) {
  return file.path + ":" + std::to_string(include.line) + ": includes " + include.name + ": ";
}

std::string quoted_problem(const std::string& path, const std::string& name,
                           const std::vector<SourceFile>& tree) {
  const Folder* from = folder_of(path);
  const Folder* to = folder_of(name);
  if (!find_file(name, tree)) return "there is no such file";
  if (!from || !to) return "outside of the folders of the project";
  return may_include(*from, name) ? "" : from->path + " must not include " + to->path;
}

std::string vendor_problem(const SourceFile& file, const std::string& name) {
  for (const Vendor& vendor : vendors()) {
    if (!name.starts_with(vendor.prefix)) continue;
    if (!begins_with_any(file.path, vendor.where)) {
      std::string allowed;
      for (const auto& where : vendor.where) allowed += (allowed.empty() ? "" : ", ") + where;
      return "belongs only in " + allowed;
    }
    if (file.is_header() && !begins_with_any(file.path, vendor.headers) && !file.path.starts_with("tests/"))
      return "belongs in source files, not in headers";
  }
  return "";
}

using Graph = std::map<std::string, std::set<std::string>>;

// A depth-first search for cycles in a graph. run() returns each cycle as a text "A -> B -> A".
class CycleSearch {
 public:
  explicit CycleSearch(Graph graph) : graph_(std::move(graph)) {}

  std::vector<std::string> run() {
    for (const auto& [name, targets] : Graph(graph_)) visit(name);
    return cycles_;
  }

 private:
  void visit(const std::string& name) {
    const auto open = std::find(stack_.begin(), stack_.end(), name);
    if (open != stack_.end()) {
      std::string text;
      for (auto step = open; step != stack_.end(); ++step) text += *step + " -> ";
      cycles_.push_back(text + name);
    }
    if (!visited_.insert(name).second) return;
    stack_.push_back(name);
    for (const std::string& target : graph_[name]) visit(target);
    stack_.pop_back();
  }

  Graph graph_;
  std::set<std::string> visited_;
  Names stack_;
  std::vector<std::string> cycles_;
};

// Returns a graph with an edge from name_of(A) to name_of(B) if file A includes file B with quotes.
template <class NameOf>
Graph include_graph(const std::vector<SourceFile>& tree, NameOf&& name_of) {
  Graph graph;
  for (const SourceFile& file : tree) {
    if (!file.is_code()) continue;
    const std::string from = name_of(file.path);
    for (const Include& include : includes_of(file))
      if (const std::string to = name_of(include.name); include.quoted && to != from) graph[from].insert(to);
  }
  return graph;
}

bool is_internal(const SourceFile& file) {
  return file.text.substr(0, file.text.find("#pragma once")).find("Internal to") != std::string::npos;
}

}  // namespace

std::vector<std::string> include_problems(const SourceFile& file, const std::vector<SourceFile>& tree) {
  std::vector<std::string> problems;
  for (const Include& include : includes_of(file)) {
    const std::string problem =
        include.quoted ? quoted_problem(file.path, include.name, tree) : vendor_problem(file, include.name);
    if (!problem.empty()) problems.push_back(location_of(file, include) + problem);
  }
  return problems;
}

std::vector<std::string> unit_cycles(const std::vector<SourceFile>& tree) {
  return CycleSearch(
             include_graph(tree, [](const std::string& path) { return path.substr(0, path.rfind('.')); }))
      .run();
}

std::vector<std::string> folder_cycles(const std::vector<SourceFile>& tree,
                                       const std::vector<FolderInclude>& allowed) {
  Graph graph = include_graph(tree, [](const std::string& path) { return path.substr(0, path.rfind('/')); });
  for (const FolderInclude& edge : allowed) graph[edge.from].erase(edge.to);
  return CycleSearch(std::move(graph)).run();
}

std::vector<std::string> internal_problems(const SourceFile& file, const std::vector<SourceFile>& tree) {
  if (!file.is_header() || is_internal(file) || file.path.starts_with("tests/")) return {};
  std::vector<std::string> problems;
  for (const Include& include : includes_of(file)) {
    const SourceFile* header = include.quoted ? find_file(include.name, tree) : nullptr;
    if (header && is_internal(*header))
      problems.push_back(location_of(file, include) + "is an internal header");
  }
  return problems;
}

}  // namespace tapeformer::test
