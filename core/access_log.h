// Counts of the memory accesses of kernels in the emulation of CUDA. Only programs with instrumented kernels
// count them (cmake/TapeformerAccesses.cmake).
//
// The accesses of the lanes of a warp form a request if they come from the same instruction, in the same
// repetition since the last barrier. Global memory is accessed in sectors of 32 bytes. Shared memory
// has 32 banks of 4 bytes, and a request takes one cycle for each of the different words that it needs from a
// bank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "core/source_location.h"

namespace tapeformer {

// Number of access widths: 1, 2, 4, 8 and 16 bytes. Longer accesses count as several accesses.
inline constexpr size_t kAccessWidthCount = 5;
inline constexpr int64_t kSectorBytes = 32;

struct AccessCounts {
  int64_t requests = 0;     // requests to global memory
  int64_t sectors = 0;      // sectors of the requests
  int64_t min_sectors = 0;  // sectors that the bytes of each request would fill if adjacent
  std::array<int64_t, kAccessWidthCount> bytes =
      {};                         // bytes of all lanes by the width 1 << i of their accesses
  int64_t written_bytes = 0;      // part of `bytes` that is written
  int64_t shared_requests = 0;    // requests to shared memory
  int64_t shared_cycles = 0;      // cycles of these requests
  int64_t min_shared_cycles = 0;  // cycles without bank conflicts

  AccessCounts& operator+=(const AccessCounts& other) {
    requests += other.requests;
    sectors += other.sectors;
    min_sectors += other.min_sectors;
    for (size_t i = 0; i < kAccessWidthCount; ++i) bytes[i] += other.bytes[i];
    written_bytes += other.written_bytes;
    shared_requests += other.shared_requests;
    shared_cycles += other.shared_cycles;
    min_shared_cycles += other.min_shared_cycles;
    return *this;
  }
  int64_t conflicts() const { return shared_cycles - min_shared_cycles; }
};

// Accesses of all launches from one source line.
struct LaunchAccesses {
  int64_t launch_count = 0;
  // Counts by instruction. The key is the return address of the access, relative to the start of the program.
  std::map<uint64_t, AccessCounts> counts_by_instruction = {};

  AccessCounts total() const {
    AccessCounts sum;
    for (const auto& [address, counts] : counts_by_instruction) sum += counts;
    return sum;
  }
};

// Source file, line and op of a launch.
using LaunchKey = std::tuple<std::string, int, std::string>;

// Counts the accesses of the kernels that this thread launches during the lifetime of the object. The
// constructor throws DeviceError if the program has no instrumented kernels. A thread has at most one log.
class AccessLog {
 public:
  AccessLog();
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // May be called only while no kernel runs.
  const std::map<LaunchKey, LaunchAccesses>& launches() const { return launches_; }

  // Returns the log of this thread, or null.
  static AccessLog* current() { return current_; }
  // Both functions may be called by several threads.
  void add_launch(SourceLocation where, const char* op);
  void add(SourceLocation where, const char* op, const std::map<uint64_t, AccessCounts>& instructions);

 private:
  static constinit thread_local AccessLog* current_;
  std::mutex mutex_;
  std::map<LaunchKey, LaunchAccesses> launches_;
};

// Records that the program has instrumented kernels.
void record_instrumented_kernels();

}  // namespace tapeformer
