#include "core/base/control_group.h"

#include <fstream>
#include <string>
#include <vector>

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

bool contains_name(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

// Returns the folders of the control group of this process and of the groups above it, for version 2 and for
// the hierarchy of `controller` in version 1. Some of the folders may not exist. In a container, the path of
// the group often starts outside of the container, and only the folder of the mount point exists.
std::vector<fs::path> list_group_folders(const fs::path& root, const std::string& controller) {
  std::vector<fs::path> folders;
  std::ifstream file(root / "proc/self/cgroup");
  // Each line has the form NUMBER:CONTROLLERS:/PATH. Version 2 has no controllers.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !contains_name(controllers, controller)) continue;
    const std::vector<std::string> mounts =
        controllers.empty() ? std::vector<std::string>{".", "unified"} : std::vector{controllers, controller};
    for (const std::string& mount : mounts)
      for (fs::path group = line.substr(second + 2);; group = group.parent_path()) {
        folders.push_back(root / "sys/fs/cgroup" / mount / group);
        if (group.empty()) break;
      }
  }
  return folders;
}

// Returns the number in a file, or 0 if the file does not exist or does not start with a number.
int64_t read_number(const fs::path& path) {
  int64_t number = 0;
  return std::ifstream(path) >> number ? number : 0;
}

}  // namespace

std::optional<ProcessorQuota> read_processor_quota(const fs::path& root) {
  std::optional<ProcessorQuota> smallest;
  const auto add = [&](int64_t quota, int64_t period, const fs::path& file) {
    if (quota <= 0 || period <= 0) return;
    const double processors = static_cast<double>(quota) / static_cast<double>(period);
    if (!smallest || processors < smallest->processors)
      smallest = ProcessorQuota{processors, file.lexically_normal()};
  };
  for (const fs::path& folder : list_group_folders(root, "cpu")) {
    const fs::path version_1 = folder / "cpu.cfs_quota_us", version_2 = folder / "cpu.max";
    add(read_number(version_1), read_number(folder / "cpu.cfs_period_us"), version_1);
    // The file contains the quota, or "max" if there is none, and the period.
    std::ifstream file(version_2);
    if (int64_t quota = 0, period = 0; file >> quota >> period) add(quota, period, version_2);
  }
  return smallest;
}

std::optional<int64_t> read_memory_limit(const fs::path& root) {
  std::optional<int64_t> smallest;
  for (const fs::path& folder : list_group_folders(root, "memory"))
    for (const char* const name : {"memory.limit_in_bytes", "memory.max"})
      if (const int64_t bytes = read_number(folder / name); bytes > 0 && bytes < smallest.value_or(INT64_MAX))
        smallest = bytes;
  return smallest;
}

}  // namespace tapeformer
