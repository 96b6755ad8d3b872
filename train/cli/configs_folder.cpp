#include "train/cli/configs_folder.h"

#include <vector>

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
    if (fs::is_directory(folder / "reformer", error)) return folder;
  return {};
}

}  // namespace tapeformer
