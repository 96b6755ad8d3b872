// A log of the work that is launched on a CUDA device: kernels, matrix products of cuBLAS, copies and fills.
// This header does not include CUDA's headers.
//
// The logged bytes of a kernel are the total size of its arrays, because most kernels read or write each
// array once. WorkLog finds the arrays in the arguments of the kernel. If a word of an argument is an address
// inside a live block of memory, the size of this block is added. If a kernel accesses only parts of its
// arrays, or updates arrays in place, its launch sets the bytes (LaunchWork in core/cuda/launch.h).
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
  // Whether cuBLAS may divide the dimension k among thread blocks. False for the epilogue "bias gradient",
  // which also sums an operand over k.
  bool can_split_k = true;
  std::string epilogue = {};  // "", "bias", "bias and relu" or "bias gradient"
};

enum class WorkKind : unsigned char { kernel, product, copy };

// One kernel, matrix product, copy or fill.
struct WorkRecord {
  WorkKind kind = WorkKind::kernel;
  std::string op;        // name of the op that launched the work; empty for work outside of ops
  SourceLocation where;  // location of the launch in the source code
  int64_t bytes = 0;     // number of bytes read and written
  double flop = 0;       // number of floating-point operations in matrix products
  OperandType type = OperandType::float32;
  ProductShape product = {};  // only for WorkKind::product
  // Only for WorkKind::kernel: the number of blocks, the threads per block, and the bytes of dynamic shared
  // memory per block.
  int64_t blocks = 0, threads = 0, shared_bytes = 0;
};

// The log of the work that this thread launches during the lifetime of the object. The logged bytes of a
// kernel include only arrays that were allocated during the lifetime of the current BlockRecording
// (core/live_blocks.h). The work of a CUDA graph is logged when the graph is recorded, and not when it is
// replayed. A thread may have at most one log.
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
  void add_product(const ProductShape& product, OperandType type, bool reads_result, SourceLocation where);
  // Adds a copy or a fill. `bytes` is the number of bytes of device memory that are read and written.
  void add_copy(int64_t bytes, SourceLocation where);

 private:
  static constinit thread_local WorkLog* current_;
  std::vector<WorkRecord> records_;
};

// The bytes of one argument of a kernel.
using ArgumentBytes = std::span<const std::byte>;
// Returns the total size of the live memory blocks to which words of the arguments point. If several words
// point to the same block, the block counts once.
int64_t sum_array_bytes(std::span<const ArgumentBytes> arguments);

// During the lifetime of the object, the emulation does not run the kernels, matrix products, copies and
// fills that this thread launches. A WorkLog can then log work that would need too much time or memory on the
// CPU. Results are undefined. The emulation also does not initialize device memory, so the memory uses no
// physical pages. The constructor throws DeviceError in builds without the emulation.
class SkippedWork {
 public:
  SkippedWork();
  ~SkippedWork();
  SkippedWork(const SkippedWork&) = delete;
  SkippedWork& operator=(const SkippedWork&) = delete;
};

}  // namespace tapeformer::cuda
