#include "core/emulation/access_recorder.h"

#include <link.h>

#include <algorithm>

#include "core/emulation/runtime.h"

namespace tapeformer::cuda::emulation {
namespace {

constexpr size_t kLanes = 32;
constexpr uint64_t kBankBytes = 4, kBanks = 32;
constexpr uint64_t kLargestWidth = 16;

uint64_t number_of(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}

// The loaded program or library that contains the variables of __shared__, and the address range of its
// thread-local variables in this thread.
struct Module {
  uint64_t base = 0, begin = 0, end = 0;
};

// Finds the module whose thread-local variables include threadIdx.
int find_module(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS || !info->dlpi_tls_data) continue;
    const uint64_t begin = number_of(info->dlpi_tls_data), end = begin + header.p_memsz;
    if (number_of(&threadIdx) < begin || number_of(&threadIdx) >= end) continue;
    *static_cast<Module*>(result) = {info->dlpi_addr, begin, end};
    return 1;
  }
  return 0;
}

const Module& module_of_thread() {
  thread_local const Module module = [] {
    Module found;
    dl_iterate_phdr(find_module, &found);
    return found;
  }();
  return module;
}

// Returns the largest power of two up to 16 that divides both numbers.
uint64_t width_of(uint64_t address, uint64_t bytes) {
  uint64_t width = kLargestWidth;
  while (address % width != 0 || bytes % width != 0) width /= 2;
  return width;
}

template <class T>
int64_t sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return static_cast<int64_t>(values.size());
}

}  // namespace

AccessRecorder::AccessRecorder(int threads, const void* shared, size_t shared_bytes)
    : dynamic_shared_{number_of(shared), number_of(shared) + shared_bytes},
      static_shared_{module_of_thread().begin, module_of_thread().end},
      global_(global_memory()),
      accesses_(static_cast<size_t>(threads)) {}

AccessRecorder::Space AccessRecorder::space_of(uint64_t address) const {
  if (dynamic_shared_.contains(address)) return Space::shared;
  if (static_shared_.contains(address)) {
    // The other thread-local variables that kernels read are the indices of the thread.
    for (const dim3* index : {&threadIdx, &blockIdx, &blockDim, &gridDim})
      if (address >= number_of(index) && address < number_of(index + 1)) return Space::other;
    return Space::shared;
  }
  const auto after =
      std::upper_bound(global_.begin(), global_.end(), address,
                       [](uint64_t at, const AddressRange& block) { return at < block.begin; });
  return after != global_.begin() && std::prev(after)->contains(address) ? Space::global : Space::other;
}

void AccessRecorder::add(const void* from, const void* address, size_t bytes, bool writes) {
  const uint64_t begin = number_of(address);
  const Space space = space_of(begin);
  if (space == Space::other || bytes == 0) return;
  const uint64_t width = width_of(begin, bytes);
  auto& accesses = accesses_[static_cast<size_t>(thread_)];
  for (uint64_t at = 0; at < bytes; at += width)
    accesses.push_back({number_of(from), begin + at, static_cast<unsigned char>(width), writes, space});
}

void AccessRecorder::finish_block() {
  for (size_t first = 0; first < accesses_.size(); first += kLanes)
    count_warp(first, std::min(first + kLanes, accesses_.size()));
  for (auto& accesses : accesses_) accesses.clear();
}

void AccessRecorder::count_warp(size_t first_thread, size_t end_thread) {
  std::array<size_t, kLanes> next{};
  std::vector<size_t> used;  // instructions with requests since the last barrier
  for (bool more = true; more;) {
    more = false;
    used.clear();
    for (size_t thread = first_thread; thread < end_thread; ++thread) {
      const std::vector<Access>& accesses = accesses_[thread];
      size_t& at = next[thread - first_thread];
      for (; at < accesses.size() && accesses[at].from != 0; ++at) group(accesses[at]);
      at += at < accesses.size() ? 1 : 0;
      more = more || at < accesses.size();
      for (const size_t i : lane_used_) instructions_[i].repetition = 0;
      used.insert(used.end(), lane_used_.begin(), lane_used_.end());
      lane_used_.clear();
    }
    sort_unique(used);
    for (const size_t i : used) count_requests(instructions_[i]);
  }
}

void AccessRecorder::group(const Access& access) {
  const bool shared = access.space == Space::shared;
  const auto [found, is_new] = index_.try_emplace(2 * access.from + shared, instructions_.size());
  if (is_new) instructions_.emplace_back().from = access.from;
  Instruction& instruction = instructions_[found->second];
  if (instruction.repetition == 0) lane_used_.push_back(found->second);
  const size_t number = instruction.repetition++;
  if (number == instruction.requests.size()) instruction.requests.emplace_back();
  instruction.used = std::max(instruction.used, number + 1);
  Request& request = instruction.requests[number];
  request.lanes[request.count++] = access;
}

void AccessRecorder::count_requests(Instruction& instruction) {
  for (size_t i = 0; i < instruction.used; ++i) {
    Request& request = instruction.requests[i];
    if (request.lanes[0].space == Space::global)
      count_global(request, instruction.counts);
    else
      count_shared(request, instruction.counts);
    request.count = 0;
  }
  instruction.used = 0;
}

void AccessRecorder::count_global(const Request& request, AccessCounts& counts) {
  constexpr uint64_t kBytes = kSectorBytes;
  std::vector<uint64_t>& sectors = sorted_;
  sectors.clear();
  std::array<uint64_t, kLanes> addresses;
  for (size_t lane = 0; lane < request.count; ++lane) {
    const Access& access = request.lanes[lane];
    addresses[lane] = access.address;
    for (uint64_t sector = access.address / kBytes; sector <= (access.address + access.width - 1) / kBytes;
         ++sector)
      sectors.push_back(sector);
    counts.bytes[static_cast<size_t>(std::countr_zero(access.width))] += access.width;
    if (access.writes) counts.written_bytes += access.width;
  }
  ++counts.requests;
  counts.sectors += sort_unique(sectors);
  std::sort(addresses.begin(), addresses.begin() + request.count);
  const auto distinct = std::unique(addresses.begin(), addresses.begin() + request.count) - addresses.begin();
  counts.min_sectors += (distinct * request.lanes[0].width + kSectorBytes - 1) / kSectorBytes;
}

// A device processes 32 accesses of up to 4 bytes, 16 accesses of 8 bytes or 8 accesses of 16 bytes at a
// time.
void AccessRecorder::count_shared(const Request& request, AccessCounts& counts) {
  ++counts.shared_requests;
  const size_t width = std::max<size_t>(request.lanes[0].width, kBankBytes),
               step = kLanes * kBankBytes / width;
  for (size_t first = 0; first < request.count; first += step) {
    std::vector<uint64_t>& words = sorted_;
    words.clear();
    for (size_t lane = first; lane < std::min(first + step, request.count); ++lane)
      for (uint64_t at = 0; at < width; at += kBankBytes)
        words.push_back((request.lanes[lane].address + at) / kBankBytes);
    sort_unique(words);
    std::array<int64_t, kBanks> words_of_bank{};
    for (const uint64_t word : words) ++words_of_bank[word % kBanks];
    counts.shared_cycles += *std::max_element(words_of_bank.begin(), words_of_bank.end());
    ++counts.min_shared_cycles;
  }
}

std::map<uint64_t, AccessCounts> AccessRecorder::counts() const {
  std::map<uint64_t, AccessCounts> result;
  // A return address follows the call, so the byte before it belongs to the call.
  for (const Instruction& instruction : instructions_)
    result[instruction.from - 1 - module_of_thread().base] += instruction.counts;
  return result;
}

}  // namespace tapeformer::cuda::emulation
