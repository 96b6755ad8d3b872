// Counts of the memory accesses of kernels in the emulation of CUDA. Accesses are counted only in programs
// whose kernels are compiled with instrumentation (cmake/TapeformerAccesses.cmake).
//
// When the lanes of a warp execute an instruction that accesses memory, their accesses form one request. If
// an instruction runs several times between two barriers, the n-th accesses of all lanes form one request.
// Global memory is accessed in sectors of 32 bytes. Shared memory has 32 banks, and each bank supplies one
// 4-byte word per cycle. If a request accesses several different words of a bank, it takes several cycles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "core/base/source_location.h"

namespace tapeformer {

// Number of access widths: 1, 2, 4, 8 and 16 bytes. Longer accesses count as several accesses.
inline constexpr size_t kAccessWidthCount = 5;
inline constexpr int64_t kSectorBytes = 32;

struct AccessCounts {
  int64_t requests = 0;     // number of requests to global memory
  int64_t sectors = 0;      // number of sectors that the requests access
  int64_t min_sectors = 0;  // number of sectors if the bytes of each request were contiguous
  // bytes[i] is the number of bytes that all lanes together read or write in global memory with accesses of
  // 1 << i bytes.
  std::array<int64_t, kAccessWidthCount> bytes = {};
  int64_t written_bytes = 0;      // number of written bytes, which are included in `bytes`
  int64_t shared_requests = 0;    // number of requests to shared memory
  int64_t shared_cycles = 0;      // number of cycles that the requests to shared memory take
  int64_t min_shared_cycles = 0;  // value of shared_cycles if there were no bank conflicts

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

// The accesses of all kernel launches by one op at one line of the source code.
struct LaunchSiteCounts {
  int64_t launch_count = 0;
  // Counts for each instruction that accesses memory. Each key is an address that addr2line converts to the
  // source line of the instruction.
  std::map<uint64_t, AccessCounts> counts_by_instruction = {};

  AccessCounts total() const {
    AccessCounts sum;
    for (const auto& [address, counts] : counts_by_instruction) sum += counts;
    return sum;
  }
};

// The source file, the line and the name of the op of a launch.
using LaunchKey = std::tuple<std::string, int, std::string>;

// Counts the accesses of the kernels that this thread launches during the lifetime of the object. The
// constructor throws DeviceError if the program has no instrumented kernels. A thread has at most one log.
class AccessLog {
 public:
  AccessLog();
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Returns the counts of all launches. Must not be called while a kernel is running.
  const std::map<LaunchKey, LaunchSiteCounts>& launches() const { return launches_; }

  // Returns the log of this thread, or null if the thread has no log.
  static AccessLog* current() { return current_; }
  // add_launch() increments the launch count of an op at a source line. add_counts() adds `instructions` to
  // the access counts of the op at the source line. Both functions are thread-safe.
  void add_launch(SourceLocation where, const char* op);
  void add_counts(SourceLocation where, const char* op, const std::map<uint64_t, AccessCounts>& instructions);

 private:
  static constinit thread_local AccessLog* current_;
  std::mutex mutex_;
  std::map<LaunchKey, LaunchSiteCounts> launches_;
};

// Records that this program contains instrumented kernels, so that an AccessLog can be constructed. The
// instrumentation calls this function when the program starts.
void record_instrumented_kernels();

}  // namespace tapeformer
