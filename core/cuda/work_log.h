// A log of the work that is submitted to a CUDA device: kernels, matrix products of cuBLAS, copies and fills.
// This header does not include CUDA's headers.
//
// The bytes of a kernel are the sizes of its arrays, because most kernels read or write each array once. An
// argument word that points into a recorded live block counts as a use of the whole block, as in a
// conservative garbage collector. A launch that accesses parts of arrays, or updates arrays in place, states
// its bytes (LaunchWork in core/cuda/launch.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/live_blocks.h"
#include "core/source_location.h"

namespace tapeformer::cuda {

// Operand types of matrix products. The peak rate of a device depends on the type; tf32 and bfloat16 products
// use tensor cores.
enum class OperandType : unsigned char { float32, tf32, bfloat16, float64 };

// A batch of `count` matrix products of cuBLAS, each c (m, n) = a (m, k) b (k, n).
struct ProductShape {
  int64_t m = 0, n = 0, k = 0, count = 1;
  int operand_bytes = 4, result_bytes = 4;
  // Whether cuBLAS may divide k among blocks. `splits` is false if the epilogue sums an operand.
  bool splits = true;
  std::string epilogue = {};  // "", "bias", "bias and relu" or "bias gradient"
};

enum class WorkKind : unsigned char { kernel, product, copy };

struct WorkRecord {
  WorkKind kind = WorkKind::kernel;
  std::string op;        // name of the op; empty outside ops
  SourceLocation where;  // location of the launch
  int64_t bytes = 0;     // bytes read and written
  double flop = 0;       // floating-point operations of matrix products
  OperandType type = OperandType::float32;
  ProductShape product = {};                          // operands and result of a matrix product
  int64_t blocks = 0, threads = 0, shared_bytes = 0;  // number of blocks of a kernel, and sizes of a block
};

// Logs the work that this thread submits during the lifetime of the object. The bytes of kernels include only
// arrays that were allocated during a BlockRecording. Work of a CUDA graph is logged when it is recorded and
// not when it is replayed. A thread has at most one log.
class WorkLog {
 public:
  WorkLog();
  ~WorkLog();
  WorkLog(const WorkLog&) = delete;
  WorkLog& operator=(const WorkLog&) = delete;

  const std::vector<WorkRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

  // Returns the log of this thread, or null.
  static WorkLog* current() { return current_; }
  void add(WorkRecord record);
  void add_product(const ProductShape& product, OperandType type, bool reads_result, SourceLocation where);
  void add_copy(int64_t bytes, SourceLocation where);

 private:
  static constinit thread_local WorkLog* current_;
  std::vector<WorkRecord> records_;
};

// The bytes of one argument of a kernel.
using ArgumentBytes = std::span<const std::byte>;
// Returns the total bytes of the distinct live blocks to which words of the arguments point.
int64_t bytes_of_arrays(std::span<const ArgumentBytes> arguments);

// Skips the kernels, products, copies and fills of this thread in the emulation during the lifetime of the
// object. Work can then be logged at sizes that the CPU cannot compute or store. Results are undefined. The
// emulation does not initialise device memory, so that the operating system provides no pages for it. The
// constructor throws DeviceError in builds without the emulation.
class SkippedWork {
 public:
  SkippedWork();
  ~SkippedWork();
  SkippedWork(const SkippedWork&) = delete;
  SkippedWork& operator=(const SkippedWork&) = delete;
};

}  // namespace tapeformer::cuda
