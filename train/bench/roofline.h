// The roofline of a benchmark: lower bounds on the time of the operations and on the time of the memory
// accesses. The bounds follow from the rate of matrix products and the memory bandwidth, which the same run
// measures.
#pragma once

#include <vector>

#include "train/bench/gemm_work.h"
#include "train/report.h"

namespace tapeformer {

// Operations and memory traffic of one measured call.
struct WorkCounts {
  double flop_count = 0;  // floating-point operations
  double byte_count = 0;  // bytes read and written
};

// Measured rates of a device. On the CPU, the measurements use the threads of the benchmark.
struct DeviceRates {
  double flops_per_second = 0;  // rate of matrix products in the precision of the device
  double bytes_per_second = 0;  // memory bandwidth
};

// A benchmark of the memory bandwidth: copies a buffer of 256 MiB, which is much larger than most caches.
class CopyBenchmark {
 public:
  explicit CopyBenchmark(Device device = kCpu);
  // Copies the buffer once. On the CPU, all threads copy. Returns the sum of the bytes read and written per
  // second.
  double measure_bytes_per_second() const;

 private:
  Device device_;
  Tensor source_, destination_;
};

// A measurement of matrix products and of a copy on a device. Benchmarks run measure_rates() and their own
// work in turn, so that other load on the machine affects both measurements.
class RateProbe {
 public:
  explicit RateProbe(std::vector<GemmShape> products, Device device = kCpu);
  DeviceRates measure_rates() const;

 private:
  GemmRunner product_runner_;
  CopyBenchmark copy_benchmark_;
  Device device_;
  double flop_count_;
};

// Returns the medians of the rates in `repeats` measurements.
DeviceRates measure_median_device_rates(const RateProbe& probe, int64_t repeats);

// Returns one product of square matrices with side min(length, 2048), for benchmarks whose own products are
// too small to measure the rate of the device.
std::vector<GemmShape> make_square_product(int64_t length);

// Adds fields to a report: the bytes of `work`, its operations per second, and the rates of the device. Also
// adds the seconds that `work` would take at each rate of the device, and the shares of these seconds in the
// measured time. The field "nearer_limit" names the rate with the larger share. Values are medians over the
// repeats. `seconds` has one element per repeat. `rates` has one element per repeat, or one element for all
// repeats.
void add_roofline(Report& report, const WorkCounts& work, const std::vector<double>& seconds,
                  const std::vector<DeviceRates>& rates);

}  // namespace tapeformer
