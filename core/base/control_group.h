// Limits of the control groups of this process, in versions 1 and 2. Containers, systemd and Slurm set such
// limits. A limit of a group also applies to the groups inside it, so the functions read the group of this
// process and all groups above it. Limits that cannot be read are ignored. `root` is the folder that contains
// proc/self/cgroup and sys/fs/cgroup.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tapeformer {

// The processor time per second that a control group may use.
struct ProcessorQuota {
  double processors;           // processor time divided by elapsed time
  std::filesystem::path file;  // the file that contains the quota
};

std::optional<ProcessorQuota> read_processor_quota(const std::filesystem::path& root = "/");

// Returns the smallest memory limit in bytes, or std::nullopt if there is none.
std::optional<int64_t> read_memory_limit(const std::filesystem::path& root = "/");

}  // namespace tapeformer
