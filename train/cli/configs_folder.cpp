#include "train/cli/configs_folder.h"

#include <algorithm>

namespace tapeformer {

namespace fs = std::filesystem;

fs::path find_configs_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::vector<fs::path> candidates = {(program.parent_path() / CONFIGS_FROM_PROGRAM).lexically_normal()};
  for (fs::path folder = program; folder.has_relative_path();) {
    folder = folder.parent_path();
    candidates.push_back(folder / "configs");
  }
  candidates.emplace_back("configs");
  for (const fs::path& folder : candidates)
    if (fs::is_directory(folder / "reformer", error))
      return fs::is_symlink(folder, error) ? fs::canonical(folder) : folder;
  return {};
}

std::vector<std::string> list_config_names() {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = find_configs_folder();
  for (auto file = fs::recursive_directory_iterator(folder, error); !error && file != end(file);
       file.increment(error))
    if (file->path().extension() == ".toml" && file->path().parent_path().filename() != "tables")
      names.push_back(file->path().lexically_relative(folder).replace_extension().string());
  return names;
}

std::string find_config(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error) && !fs::is_directory(name, error)) return name;
  const auto names = list_config_names();
  const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
  return is_known ? (find_configs_folder() / (name + ".toml")).string() : name;
}

}  // namespace tapeformer
