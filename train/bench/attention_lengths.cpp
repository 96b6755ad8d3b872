#include "train/bench/attention_lengths.h"

#include <algorithm>
#include <memory>

#include "core/allocator.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

// The inputs of attention at one length, and the times measured with these inputs.
class LengthMeasurement {
 public:
  LengthMeasurement(const AttentionKind& kind, const OptionValues& options, const AttentionTimingOptions& all,
                    int64_t length)
      : length_(length),
        calls_(std::max<int64_t>(kTimedTokenCount / (length * all.batch), 1)),
        q_(make_random_tensor({all.batch, length, all.heads, all.head_dim}, "q", all.device, all.dtype,
                              all.seed)),
        k_(kind.capabilities.shares_query_key
               ? q_
               : make_random_tensor(q_.shape(), "k", all.device, all.dtype, all.seed)),
        v_(make_random_tensor(q_.shape(), "v", all.device, all.dtype, all.seed)),
        seed_(all.seed),
        cotangent_(Tensor::full(q_.shape(), 1, all.dtype, all.device)),
        mask_{.causal = all.use_causal_mask && kind.capabilities.causal, .key_lengths = {}},
        attention_(kind.make(options, {.heads = all.heads, .dim = all.head_dim, .max_length = length})) {
    attention_->initialize(all.seed);
    attention_->move(all.device);
  }

  void run() {
    CachingAllocator& memory = device_allocator(q_.device());
    memory.reset_peak();
    const int64_t before = memory.stats().active;
    const double seconds = measure_seconds(
        [&] {
          for (int64_t i = 0; i < calls_; ++i) {
            backward(attention_->forward(q_, k_, v_, mask_, {.seed = seed_}, "bench"), cotangent_);
            for (const Tensor& x : {q_, k_, v_}) set_gradient(x, {});
            for (const Tensor& x : attention_->leaves()) set_gradient(x, {});
          }
        },
        q_.device());
    times_.push_back(seconds / static_cast<double>(calls_));
    const int64_t inputs = (k_.raw() == q_.raw() ? 3 : 4) * q_.bytes();
    peak_ = memory.stats().peak - before + inputs;
  }
  void clear_times() { times_.clear(); }
  double last_seconds() const { return times_.back(); }
  AttentionTiming sample() const { return {length_, compute_median(times_), peak_}; }

 private:
  int64_t length_, calls_;  // number of tokens, and number of calls per measurement
  Tensor q_, k_, v_;
  uint64_t seed_;
  Tensor cotangent_;
  AttentionMask mask_;
  std::unique_ptr<Attention> attention_;
  std::vector<double> times_;
  int64_t peak_ = 0;
};

}  // namespace

std::vector<OptionSpec> make_attention_size_options() {
  const auto count = [](const char* name, int64_t value, const char* help, double max) {
    return OptionSpec{.name = name, .default_value = value, .help = help, .min = 1, .max = max};
  };
  return {count("shortest", 512, "smallest length", 1 << 24),
          count("longest", 65536, "largest length", 1 << 24),
          count("batch", 1, "sequences", 4096),
          count("heads", 8, "heads", 1024),
          count("head-dim", 64, "dimensions of a head", 1024),
          {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1}};
}

Tensor make_random_tensor(const Shape& shape, const char* name, Device device, DType dtype, uint64_t seed) {
  const Tensor x = Tensor::empty(shape);
  const RandomStream stream(seed, name);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return require_grad(x.to(dtype).to(device));
}

void TimeSpread::add(int64_t length, double seconds_per_token) {
  if (length < kMinSpreadLength) return;
  fastest_ = count_ == 0 ? seconds_per_token : std::min(fastest_, seconds_per_token);
  slowest_ = std::max(slowest_, seconds_per_token);
  ++count_;
}

std::vector<AttentionTiming> measure_attention(const AttentionKind& kind, const OptionValues& options,
                                               const AttentionTimingOptions& lengths) {
  std::vector<LengthMeasurement> measurements;
  for (int64_t length = lengths.shortest; length <= lengths.longest; length *= 2) {
    measurements.emplace_back(kind, options, lengths, length).run();
    // Doubling the length multiplies the time by at most four, so the next length could exceed
    // `max_pass_seconds`.
    if (4 * measurements.back().last_seconds() > lengths.max_pass_seconds) break;
  }
  for (LengthMeasurement& measurement : measurements) measurement.clear_times();
  for (int64_t i = 0; i < lengths.repeats; ++i)
    for (LengthMeasurement& measurement : measurements) measurement.run();
  std::vector<AttentionTiming> samples;
  for (const LengthMeasurement& measurement : measurements) samples.push_back(measurement.sample());
  return samples;
}

}  // namespace tapeformer
