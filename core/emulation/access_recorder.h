// Recorder of the memory accesses of emulated kernels. Each CPU thread that runs thread blocks has a
// recorder. Instrumented kernels call the hooks of access_hooks.cpp before each access, and the hooks pass
// the access to the recorder.
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

// Records the memory accesses of emulated thread blocks, one block at a time. finish_block() groups the
// accesses of a block into the requests that the warps of a device would issue, and counts the requests.
class AccessRecorder {
 public:
  // `shared` is the address of the dynamic shared memory of the block, which has shared_bytes bytes.
  AccessRecorder(int thread_count, const void* shared, size_t shared_bytes);

  // Sets the thread of the block to which the following accesses belong.
  void select_thread(int thread) { thread_ = thread; }
  // Records that the selected thread passes a barrier of the block, or a barrier of all lanes of its warp.
  void record_barrier() { accesses_[static_cast<size_t>(thread_)].push_back({}); }
  // Records an access of the selected thread to `bytes` bytes. `return_address` is the return address of the
  // hook and identifies the instruction.
  void record_access(const void* return_address, const void* address, size_t bytes, bool is_write);
  // Adds the requests of the block to the counts, and deletes the accesses of the block.
  void finish_block();
  // Returns the access counts of each instruction, summed over all finished blocks. The keys are addresses of
  // instructions, as in LaunchSiteCounts::counts_by_instruction (core/access_log.h).
  std::map<uint64_t, AccessCounts> counts() const;

 private:
  enum class Space : unsigned char { other, global, shared };
  struct Access {
    uint64_t return_address = 0;  // return address of the hook, or 0 to mark a barrier
    uint64_t address = 0;
    unsigned char width = 0;  // bytes
    bool is_write = false;
    Space space = Space::other;
  };
  // A memory request of a warp. When the warp executes an instruction, the accesses of its lanes form one
  // request.
  struct Request {
    std::array<Access, 32> lanes;
    size_t lane_count = 0;
  };
  struct Instruction {
    uint64_t return_address = 0;
    size_t access_count = 0;  // number of accesses by the current lane since the last barrier
    // The first request_count elements are the requests since the last barrier. The other elements are
    // unused.
    std::vector<Request> requests;
    size_t request_count = 0;
    AccessCounts counts = {};
  };

  Space find_space(uint64_t address) const;
  // Groups the accesses of the threads [first_thread, end_thread), which form a warp, into requests, and
  // counts the requests.
  void count_warp_requests(size_t first_thread, size_t end_thread);
  // Adds an access of the current lane to a request. Between two barriers, the n-th accesses of all lanes by
  // the same instruction form one request.
  void add_to_request(const Access& access);
  // Adds the requests of an instruction since the last barrier to the counts, and deletes the requests.
  void count_requests(Instruction& instruction);
  void count_global_request(const Request& request, AccessCounts& counts);
  void count_shared_request(const Request& request, AccessCounts& counts);

  int thread_ = 0;
  AddressRange dynamic_shared_, static_shared_;
  std::vector<AddressRange> global_blocks_;  // allocated blocks of global memory, sorted by address
  // accesses_[i] contains the accesses and barriers of thread i of the current block, in order.
  std::vector<std::vector<Access>> accesses_;
  // Maps 2 * return_address (for global memory) or 2 * return_address + 1 (for shared memory) to an index in
  // instructions_. An instruction that accesses both global and shared memory has two elements in
  // instructions_.
  std::unordered_map<uint64_t, size_t> instruction_index_;
  std::vector<Instruction> instructions_;
  // Indices of the instructions that the current lane has executed since the last barrier.
  std::vector<size_t> lane_instructions_;
  std::vector<uint64_t> sorted_scratch_;  // temporary list of the sectors or words of one request
};

// The recorder of the block that this CPU thread runs; null if accesses are not counted.
inline constinit thread_local AccessRecorder* access_recorder = nullptr;

}  // namespace tapeformer::cuda::emulation
