// Functions that measure times, and a scope that sets the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/stopwatch.h"
#include "core/threads/threads.h"

namespace tapeformer {

// Returns the seconds that a call of f takes, including the work that f submits to the device.
template <class F>
double measure_call_seconds(F&& f, Device device = kCpu) {
  const Stopwatch watch(device);
  f();
  return watch.measure_elapsed_seconds();
}

// Returns the median, or 0 for an empty list.
inline double compute_median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Returns the median time in seconds of `repeats` calls of f, after one call that is not measured.
template <class F>
double measure_median_call_seconds(int64_t repeats, F&& f, Device device = kCpu) {
  f();
  std::vector<double> times;
  for (int64_t i = 0; i < repeats; ++i) times.push_back(measure_call_seconds(f, device));
  return compute_median(times);
}

// A scope that sets the number of CPU threads to `count`. The destructor restores the previous number.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int count) : previous_count_(get_thread_count()) { set_thread_count(count); }
  ~ThreadCountScope() { set_thread_count(previous_count_); }
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  int previous_count_;
};

}  // namespace tapeformer
