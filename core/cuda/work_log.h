// A log of the work that is launched on a CUDA device: kernels, matrix products of cuBLAS, copies and fills.
//
// By default, the logged bytes of a kernel are the total size of the arrays to which its arguments point
// (sum_array_bytes()), because most kernels read or write each array once. For other kernels, the code that
// launches the kernel sets the number of bytes (LaunchWork in core/cuda/launch.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/live_blocks.h"
#include "core/source_location.h"

namespace tapeformer::cuda {

// The operand type of a matrix product. The peak rate of a device depends on this type, because tf32 and
// bfloat16 products use tensor cores.
enum class OperandType : unsigned char { float32, tf32, bfloat16, float64 };

// A batch of `count` matrix products of cuBLAS, each c (m, n) = a (m, k) b (k, n).
struct ProductShape {
  int64_t m = 0, n = 0, k = 0, count = 1;
  int operand_bytes = 4, result_bytes = 4;
  // True if cuBLAS can divide the sum over k among thread blocks. `can_split_k` is false for the epilogue
  // "bias gradient".
  bool can_split_k = true;
  std::string epilogue = {};  // "", "bias", "bias and relu" or "bias gradient"
};

enum class WorkKind : unsigned char { kernel, product, copy };

// One kernel, matrix product, copy or fill.
struct WorkRecord {
  WorkKind kind = WorkKind::kernel;
  std::string op;  // name of the op that launched the work; empty for work outside of ops
  SourceLocation where;
  int64_t bytes = 0;  // number of bytes read and written
  double flop = 0;    // number of floating-point operations in matrix products
  OperandType operand_type = OperandType::float32;
  // Number of instructions of a kernel, summed over all warps. An instruction that the lanes of a warp
  // execute together counts once. The value is 0 for products and copies, and if the number is unknown.
  double warp_instructions = 0;
  ProductShape product = {};  // only for WorkKind::product
  // Only for WorkKind::kernel: the number of blocks, the threads per block, and the bytes of dynamic shared
  // memory per block.
  int64_t block_count = 0, thread_count = 0, shared_bytes = 0;
};

// The log of the work that this thread launches during the lifetime of the object. The constructor throws
// ShapeError if the thread already has a log.
//
// Arrays that were allocated without a BlockRecordingScope (core/live_blocks.h) count as 0 bytes. The work of
// a CUDA graph is logged when the graph is captured, not when it is replayed.
class WorkLog {
 public:
  WorkLog();
  ~WorkLog();
  WorkLog(const WorkLog&) = delete;
  WorkLog& operator=(const WorkLog&) = delete;

  const std::vector<WorkRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

  // Returns the log of this thread, or null if the thread has no log.
  static WorkLog* current() { return current_; }
  // Adds a record to the log, and sets `op` of the record to current_op.
  void add(WorkRecord record);
  // Adds a matrix product. If reads_result is true, the product reads c before it writes c (beta is not 0).
  void add_product(const ProductShape& product, OperandType operand_type, bool reads_result,
                   SourceLocation where);
  // Adds a copy or a fill. `bytes` is the number of bytes of device memory that are read and written.
  void add_copy(int64_t bytes, SourceLocation where);

 private:
  static constinit thread_local WorkLog* current_;
  std::vector<WorkRecord> records_;
};

// The bytes of one argument of a kernel.
using ArgumentBytes = std::span<const std::byte>;
// Interprets each 8-byte word of the arguments as an address, and returns the total size of the live memory
// blocks that contain these addresses. Each block is counted once.
int64_t sum_array_bytes(std::span<const ArgumentBytes> arguments);

// During the lifetime of the object, the emulation does not run the work that this thread launches, and does
// not initialize the device memory that this thread allocates. The results of the skipped work are undefined.
// A WorkLog can then log work that would need too much time or memory on the CPU. The constructor throws
// DeviceError in builds without the emulation.
class SkippedWorkScope {
 public:
  SkippedWorkScope();
  ~SkippedWorkScope();
  SkippedWorkScope(const SkippedWorkScope&) = delete;
  SkippedWorkScope& operator=(const SkippedWorkScope&) = delete;
};

}  // namespace tapeformer::cuda
