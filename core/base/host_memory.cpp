#include "core/base/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "core/base/control_group.h"

namespace tapeformer {
namespace {

// Returns MemAvailable of /proc/meminfo in bytes, or 0 if the system does not report it.
int64_t read_reported_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (int64_t kibibytes = 0; word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  return 0;
}

}  // namespace

int64_t get_available_memory() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (const int64_t available = read_reported_memory(); available > 0) bytes = std::min(bytes, available);
  return std::min(bytes, read_memory_limit().value_or(bytes));
}

bool can_map_memory(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* const block =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return false;
  munmap(block, size);
  return true;
}

}  // namespace tapeformer
