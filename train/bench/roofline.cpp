#include "train/bench/roofline.h"

#include <algorithm>
#include <cstring>

#include "core/cuda/transfers.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

constexpr int64_t kCopyBytes = int64_t{256} << 20;
constexpr int64_t kMaxSide = 2048;

}  // namespace

CopyBenchmark::CopyBenchmark(Device device)
    : device_(device),
      source_(Tensor::zeros({kCopyBytes}, DType::uint8, device)),
      destination_(Tensor::zeros({kCopyBytes}, DType::uint8, device)) {}

double CopyBenchmark::measure_bytes_per_second() const {
  const auto copy = [&] {
    if constexpr (kHasCuda)
      if (!device_.is_cpu())
        return cuda::copy_bytes(destination_.raw_data(), device_, source_.raw_data(), device_, kCopyBytes);
    parallel_for(kCopyBytes, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(destination_.data<uint8_t>() + begin, source_.data<uint8_t>() + begin,
                  static_cast<size_t>(end - begin));
    });
  };
  return 2 * static_cast<double>(kCopyBytes) / measure_call_seconds(copy, device_);
}

DeviceRateProbe::DeviceRateProbe(std::vector<GemmShape> products, Device device)
    : gemm_runner_(std::move(products), device),
      copy_benchmark_(device),
      device_(device),
      flop_count_(sum_flops(gemm_runner_.products())) {
  gemm_runner_.run();
}

DeviceRates DeviceRateProbe::measure_rates() const {
  return {flop_count_ / measure_call_seconds([&] { gemm_runner_.run(); }, device_),
          copy_benchmark_.measure_bytes_per_second()};
}

DeviceRates measure_median_device_rates(const DeviceRateProbe& probe, int64_t repeats) {
  std::vector<double> flops, bytes;
  for (int64_t i = 0; i < repeats; ++i) {
    const DeviceRates rates = probe.measure_rates();
    flops.push_back(rates.flops_per_second);
    bytes.push_back(rates.bytes_per_second);
  }
  return {compute_median(flops), compute_median(bytes)};
}

std::vector<GemmShape> make_square_product_shapes(int64_t length) {
  const int64_t side = std::min(length, kMaxSide);
  return {{"square", side, side, side, false, true, 1}};
}

void add_roofline_comparison(Report& report, const WorkCounts& work, const std::vector<double>& seconds,
                             const std::vector<DeviceRates>& rates) {
  std::vector<double> flop_rates, byte_rates, at_matrix_rate, at_memory_rate, matrix_shares, memory_shares;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const DeviceRates& rate = rates[std::min(i, rates.size() - 1)];
    flop_rates.push_back(rate.flops_per_second);
    byte_rates.push_back(rate.bytes_per_second);
    at_matrix_rate.push_back(work.flop_count / rate.flops_per_second);
    at_memory_rate.push_back(work.byte_count / rate.bytes_per_second);
    matrix_shares.push_back(at_matrix_rate.back() / seconds[i]);
    memory_shares.push_back(at_memory_rate.back() / seconds[i]);
  }
  const double matrix_share = compute_median(matrix_shares), memory_share = compute_median(memory_shares);
  report.add("gigabytes", work.byte_count / kGiga)
      .add("gflops", work.flop_count / compute_median(seconds) / kGiga)
      .add("matrix_gflops", compute_median(flop_rates) / kGiga)
      .add("memory_gigabytes_per_second", compute_median(byte_rates) / kGiga)
      .add("seconds_at_matrix_rate", compute_median(at_matrix_rate))
      .add("seconds_at_memory_rate", compute_median(at_memory_rate))
      .add("share_of_matrix_rate", matrix_share)
      .add("share_of_memory_rate", memory_share)
      .add("nearer_limit", std::string(matrix_share >= memory_share ? "matrix rate" : "memory bandwidth"));
}

}  // namespace tapeformer
