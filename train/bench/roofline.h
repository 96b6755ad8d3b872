// The roofline of a benchmark: lower bounds on the time of the operations and on the time of the memory
// accesses. The bounds are computed from the rate of matrix products and from the memory bandwidth, which are
// measured in the same run as the benchmark.
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

// Measured rates of a device. The rates of the CPU are measured with get_thread_count() threads.
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

// An object that measures the rates of matrix products and of a memory copy on a device. Benchmarks alternate
// measure_rates() with their own work, so that other load on the machine affects both measurements.
class DeviceRateProbe {
 public:
  explicit DeviceRateProbe(std::vector<GemmShape> products, Device device = kCpu);
  DeviceRates measure_rates() const;

 private:
  GemmRunner gemm_runner_;
  CopyBenchmark copy_benchmark_;
  Device device_;
  double flop_count_;
};

// Returns the medians of the rates in `repeats` measurements.
DeviceRates measure_median_device_rates(const DeviceRateProbe& probe, int64_t repeats);

// Returns a list with the shape of one product of square matrices with side min(length, 2048). Benchmarks use
// this product if the products of their model are too small to measure the rate of the device.
std::vector<GemmShape> make_square_product_shapes(int64_t length);

// Compares the measured times of a call with the roofline and adds the results to `report`. The roofline has
// two limits: the rate of matrix products and the memory bandwidth. For each limit, the report contains the
// seconds that `work` takes at the limit, and the ratio of these seconds to the measured seconds. The field
// "nearer_limit" names the limit with the larger ratio. The results are medians over the repeats.
//
// `seconds` contains the measured time of each repeat. `rates` contains the measured rates of each repeat, or
// a single element that is used for all repeats.
void add_roofline_comparison(Report& report, const WorkCounts& work, const std::vector<double>& seconds,
                             const std::vector<DeviceRates>& rates);

}  // namespace tapeformer
