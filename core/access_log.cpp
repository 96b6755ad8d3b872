#include "core/access_log.h"

#include "core/base/errors.h"

namespace tapeformer {
namespace {

// True in a program with instrumented kernels. record_instrumented_kernels() sets this variable before
// main(), and possibly before dynamic initialization. The variable is initialized at compile time, so that no
// dynamic initializer overwrites the value.
constinit bool instrumented = false;

}  // namespace

constinit thread_local AccessLog* AccessLog::current_ = nullptr;

AccessLog::AccessLog() {
  if (!instrumented)
    throw DeviceError(
        "this program does not count the memory accesses of kernels: use tapeformer_accesses of a build with "
        "-DTAPEFORMER_CUDA=EMULATED -DTAPEFORMER_COUNT_ACCESSES=ON");
  check(!current_, "AccessLog", "this thread already has a log");
  current_ = this;
}
AccessLog::~AccessLog() {
  current_ = nullptr;
}

void AccessLog::add_launch(SourceLocation where, const char* op) {
  const std::scoped_lock lock(mutex_);
  ++launches_[{where.file, where.line, op}].launch_count;
}

void AccessLog::add_counts(SourceLocation where, const char* op,
                           const std::map<uint64_t, AccessCounts>& instructions) {
  const std::scoped_lock lock(mutex_);
  LaunchSiteCounts& launch = launches_[{where.file, where.line, op}];
  for (const auto& [address, counts] : instructions) launch.counts_by_instruction[address] += counts;
}

void record_instrumented_kernels() {
  instrumented = true;
}

}  // namespace tapeformer
