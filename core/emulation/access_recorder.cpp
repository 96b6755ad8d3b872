#include "core/emulation/access_recorder.h"

#include <link.h>

#include <algorithm>

#include "core/emulation/runtime.h"

namespace tapeformer::cuda::emulation {
namespace {

constexpr size_t kLanes = 32;
constexpr uint64_t kBankBytes = 4, kBanks = 32;
constexpr uint64_t kMaxWidth = 16;

uint64_t to_integer(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}

// The program or library that contains the kernels. `base` is the load address of the module. [begin, end) is
// the address range of the thread-local variables of the module in the current thread. The thread-local
// variables include the __shared__ variables.
struct SharedVariableModule {
  uint64_t base = 0, begin = 0, end = 0;
};

// A callback for dl_iterate_phdr() that finds the program or library that contains threadIdx.
int find_module(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS || !info->dlpi_tls_data) continue;
    const uint64_t begin = to_integer(info->dlpi_tls_data), end = begin + header.p_memsz;
    if (to_integer(&threadIdx) < begin || to_integer(&threadIdx) >= end) continue;
    *static_cast<SharedVariableModule*>(result) = {info->dlpi_addr, begin, end};
    return 1;
  }
  return 0;
}

const SharedVariableModule& get_thread_module() {
  thread_local const SharedVariableModule module = [] {
    SharedVariableModule found;
    dl_iterate_phdr(find_module, &found);
    return found;
  }();
  return module;
}

// Returns the largest power of two up to 16 that divides `address` and `bytes`.
uint64_t find_access_width(uint64_t address, uint64_t bytes) {
  uint64_t width = kMaxWidth;
  while (address % width != 0 || bytes % width != 0) width /= 2;
  return width;
}

// Sorts the vector, removes duplicates and returns the number of remaining elements.
template <class T>
int64_t sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return static_cast<int64_t>(values.size());
}

}  // namespace

AccessRecorder::AccessRecorder(int thread_count, const void* shared, size_t shared_bytes)
    : dynamic_shared_{to_integer(shared), to_integer(shared) + shared_bytes},
      static_shared_{get_thread_module().begin, get_thread_module().end},
      global_blocks_(list_global_memory()),
      accesses_(static_cast<size_t>(thread_count)) {}

AccessRecorder::Space AccessRecorder::find_space(uint64_t address) const {
  if (dynamic_shared_.contains(address)) return Space::shared;
  if (static_shared_.contains(address)) {
    // The index variables are thread-local like __shared__ variables, but are not shared memory.
    for (const dim3* index : {&threadIdx, &blockIdx, &blockDim, &gridDim})
      if (address >= to_integer(index) && address < to_integer(index + 1)) return Space::other;
    return Space::shared;
  }
  const auto after =
      std::upper_bound(global_blocks_.begin(), global_blocks_.end(), address,
                       [](uint64_t at, const AddressRange& block) { return at < block.begin; });
  return after != global_blocks_.begin() && std::prev(after)->contains(address) ? Space::global
                                                                                : Space::other;
}

void AccessRecorder::record_access(const void* return_address, const void* address, size_t bytes,
                                   bool is_write) {
  const uint64_t begin = to_integer(address);
  const Space space = find_space(begin);
  if (space == Space::other || bytes == 0) return;
  const uint64_t width = find_access_width(begin, bytes);
  auto& accesses = accesses_[static_cast<size_t>(thread_)];
  for (uint64_t at = 0; at < bytes; at += width)
    accesses.push_back(
        {to_integer(return_address), begin + at, static_cast<unsigned char>(width), is_write, space});
}

void AccessRecorder::finish_block() {
  for (size_t first = 0; first < accesses_.size(); first += kLanes)
    count_warp_requests(first, std::min(first + kLanes, accesses_.size()));
  for (auto& accesses : accesses_) accesses.clear();
}

void AccessRecorder::count_warp_requests(size_t first_thread, size_t end_thread) {
  std::array<size_t, kLanes> next{};
  std::vector<size_t> active;  // indices of the instructions with accesses since the last barrier
  for (bool more = true; more;) {
    more = false;
    active.clear();
    for (size_t thread = first_thread; thread < end_thread; ++thread) {
      const std::vector<Access>& accesses = accesses_[thread];
      size_t& at = next[thread - first_thread];
      for (; at < accesses.size() && accesses[at].return_address != 0; ++at) add_to_request(accesses[at]);
      at += at < accesses.size() ? 1 : 0;
      more = more || at < accesses.size();
      for (const size_t i : lane_instructions_) instructions_[i].access_count = 0;
      active.insert(active.end(), lane_instructions_.begin(), lane_instructions_.end());
      lane_instructions_.clear();
    }
    sort_unique(active);
    for (const size_t i : active) count_requests(instructions_[i]);
  }
}

void AccessRecorder::add_to_request(const Access& access) {
  const bool shared = access.space == Space::shared;
  const auto [found, is_new] =
      instruction_index_.try_emplace(2 * access.return_address + shared, instructions_.size());
  if (is_new) instructions_.emplace_back().return_address = access.return_address;
  Instruction& instruction = instructions_[found->second];
  if (instruction.access_count == 0) lane_instructions_.push_back(found->second);
  const size_t i = instruction.access_count++;
  if (i == instruction.requests.size()) instruction.requests.emplace_back();
  instruction.request_count = std::max(instruction.request_count, i + 1);
  Request& request = instruction.requests[i];
  request.lanes[request.lane_count++] = access;
}

void AccessRecorder::count_requests(Instruction& instruction) {
  for (size_t i = 0; i < instruction.request_count; ++i) {
    Request& request = instruction.requests[i];
    if (request.lanes[0].space == Space::global)
      count_global_request(request, instruction.counts);
    else
      count_shared_request(request, instruction.counts);
    request.lane_count = 0;
  }
  instruction.request_count = 0;
}

void AccessRecorder::count_global_request(const Request& request, AccessCounts& counts) {
  constexpr uint64_t kBytes = kSectorBytes;
  std::vector<uint64_t>& sectors = sorted_scratch_;
  sectors.clear();
  std::array<uint64_t, kLanes> addresses;
  for (size_t lane = 0; lane < request.lane_count; ++lane) {
    const Access& access = request.lanes[lane];
    addresses[lane] = access.address;
    for (uint64_t sector = access.address / kBytes; sector <= (access.address + access.width - 1) / kBytes;
         ++sector)
      sectors.push_back(sector);
    counts.bytes[static_cast<size_t>(std::countr_zero(access.width))] += access.width;
    if (access.is_write) counts.written_bytes += access.width;
  }
  ++counts.requests;
  counts.sectors += sort_unique(sectors);
  std::sort(addresses.begin(), addresses.begin() + request.lane_count);
  const auto distinct =
      std::unique(addresses.begin(), addresses.begin() + request.lane_count) - addresses.begin();
  counts.min_sectors += (distinct * request.lanes[0].width + kSectorBytes - 1) / kSectorBytes;
}

// Counts the cycles of a request to shared memory. In one cycle, a device processes at most 32 lanes with
// accesses of up to 4 bytes, 16 lanes with 8 bytes, or 8 lanes with 16 bytes. Accesses to different words of
// one bank take one cycle per word.
void AccessRecorder::count_shared_request(const Request& request, AccessCounts& counts) {
  ++counts.shared_requests;
  const size_t width = std::max<size_t>(request.lanes[0].width, kBankBytes),
               step = kLanes * kBankBytes / width;
  for (size_t first = 0; first < request.lane_count; first += step) {
    std::vector<uint64_t>& words = sorted_scratch_;
    words.clear();
    for (size_t lane = first; lane < std::min(first + step, request.lane_count); ++lane)
      for (uint64_t at = 0; at < width; at += kBankBytes)
        words.push_back((request.lanes[lane].address + at) / kBankBytes);
    sort_unique(words);
    std::array<int64_t, kBanks> bank_word_counts{};
    for (const uint64_t word : words) ++bank_word_counts[word % kBanks];
    counts.shared_cycles += *std::max_element(bank_word_counts.begin(), bank_word_counts.end());
    ++counts.min_shared_cycles;
  }
}

std::map<uint64_t, AccessCounts> AccessRecorder::counts() const {
  std::map<uint64_t, AccessCounts> result;
  // The return address can belong to the source line after the call, but the byte before the return address
  // belongs to the call.
  for (const Instruction& instruction : instructions_)
    result[instruction.return_address - 1 - get_thread_module().base] += instruction.counts;
  return result;
}

}  // namespace tapeformer::cuda::emulation
