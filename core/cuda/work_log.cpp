#include "core/cuda/work_log.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/cuda/context.h"

namespace tapeformer::cuda {

constinit thread_local WorkLog* WorkLog::current_ = nullptr;

WorkLog::WorkLog() {
  check(!current_, "WorkLog", "this thread already has a log");
  current_ = this;
}
WorkLog::~WorkLog() {
  current_ = nullptr;
}

void WorkLog::add(WorkRecord record) {
  record.op = current_op;
  records_.push_back(std::move(record));
}

void WorkLog::add_product(const ProductShape& p, OperandType operand_type, bool reads_result,
                          SourceLocation where) {
  const int64_t operands = (p.m * p.k + p.k * p.n) * p.operand_bytes;
  const int64_t results = p.m * p.n * p.result_bytes * (reads_result ? 2 : 1);
  add({.kind = WorkKind::product,
       .op = {},
       .where = where,
       .bytes = p.count * (operands + results),
       .flop = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
               static_cast<double>(p.count),
       .operand_type = operand_type,
       .product = p});
}

void WorkLog::add_copy(int64_t bytes, SourceLocation where) {
  add({.kind = WorkKind::copy, .op = {}, .where = where, .bytes = bytes});
}

int64_t sum_array_bytes(std::span<const ArgumentBytes> arguments) {
  std::map<const void*, int64_t> sizes;
  for (const ArgumentBytes& argument : arguments)
    for (size_t offset = 0; offset + sizeof(void*) <= argument.size(); offset += sizeof(void*)) {
      const void* word = nullptr;
      std::memcpy(&word, argument.data() + offset, sizeof(word));
      if (const LiveBlock block = find_live_block(word); block.bytes > 0) sizes[block.begin] = block.bytes;
    }
  int64_t total = 0;
  for (const auto& [begin, bytes] : sizes) total += bytes;
  return total;
}

#ifdef TAPEFORMER_CUDA_EMULATED
SkippedWorkScope::SkippedWorkScope() {
  emulation::skips_work = true;
}
SkippedWorkScope::~SkippedWorkScope() {
  emulation::skips_work = false;
}
#else
SkippedWorkScope::SkippedWorkScope() {
  throw DeviceError("only the emulation of CUDA can skip work");
}
SkippedWorkScope::~SkippedWorkScope() = default;
#endif

}  // namespace tapeformer::cuda
