// Recorder of the memory accesses of one block of an emulated kernel. Each CPU thread that runs blocks has a
// recorder. The hooks in access_hooks.cpp, which instrumented kernels call, pass accesses to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/access_log.h"
#include "core/emulation/global_memory.h"

namespace tapeformer::cuda::emulation {

class AccessRecorder {
 public:
  // `shared` is the dynamic shared memory of the block.
  AccessRecorder(int threads, const void* shared, size_t shared_bytes);

  // Selects the thread whose accesses follow.
  void select(int thread) { thread_ = thread; }
  // Records that the thread passes a barrier of the block or of all lanes of its warp.
  void pass_barrier() { accesses_[static_cast<size_t>(thread_)].push_back({}); }
  // Records an access of `bytes` bytes by the instruction with the return address `from`.
  void add(const void* from, const void* address, size_t bytes, bool writes);
  // Counts the requests of the block and forgets its accesses.
  void finish_block();
  // Returns counts by instruction, as in LaunchAccesses::instructions.
  std::map<uint64_t, AccessCounts> counts() const;

 private:
  enum class Space : unsigned char { other, global, shared };
  struct Access {
    uint64_t from = 0;  // return address; 0 for a barrier
    uint64_t address = 0;
    unsigned char width = 0;  // bytes
    bool writes = false;
    Space space = Space::other;
  };
  // Accesses of the lanes of a warp that form a request.
  struct Request {
    std::array<Access, 32> lanes;
    size_t count = 0;
  };
  // An instruction that accesses memory.
  struct Instruction {
    uint64_t from = 0;
    size_t repetition = 0;          // number of accesses of the current lane since the last barrier
    std::vector<Request> requests;  // the first `used` requests since the last barrier
    size_t used = 0;
    AccessCounts counts = {};
  };
  Space space_of(uint64_t address) const;
  // Groups the accesses of a warp into requests and counts them.
  void count_warp(size_t first_thread, size_t end_thread);
  // Adds an access of the current lane to a request.
  void group(const Access& access);
  void count_requests(Instruction& instruction);
  void count_global(const Request& request, AccessCounts& counts);
  void count_shared(const Request& request, AccessCounts& counts);

  int thread_ = 0;
  AddressRange dynamic_shared_, static_shared_;
  std::vector<AddressRange> global_;            // sorted blocks of global memory
  std::vector<std::vector<Access>> accesses_;   // by thread
  std::unordered_map<uint64_t, size_t> index_;  // of instructions, by return address and space
  std::vector<Instruction> instructions_;
  std::vector<size_t> lane_used_;  // instructions of the current lane since the last barrier
  std::vector<uint64_t> sorted_;   // sectors or words of a request
};

// The recorder of the block that this CPU thread runs; null if accesses are not counted.
inline constinit thread_local AccessRecorder* access_recorder = nullptr;

}  // namespace tapeformer::cuda::emulation
