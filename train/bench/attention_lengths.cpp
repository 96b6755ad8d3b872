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
  LengthMeasurement(const AttentionKind& kind, const OptionValues& options,
                    const AttentionTimingOptions& timing_options, int64_t length)
      : length_(length),
        call_count_(std::max<int64_t>(kTokensPerMeasurement / (length * timing_options.batch), 1)),
        q_(make_random_tensor({timing_options.batch, length, timing_options.heads, timing_options.head_dim},
                              "q", timing_options.device, timing_options.dtype, timing_options.seed)),
        k_(kind.capabilities.shares_query_key
               ? q_
               : make_random_tensor(q_.shape(), "k", timing_options.device, timing_options.dtype,
                                    timing_options.seed)),
        v_(make_random_tensor(q_.shape(), "v", timing_options.device, timing_options.dtype,
                              timing_options.seed)),
        x_(kind.capabilities.reads_layer_input
               ? make_random_tensor(
                     {timing_options.batch, length, timing_options.heads * timing_options.head_dim}, "x",
                     timing_options.device, timing_options.dtype, timing_options.seed)
               : Tensor{}),
        seed_(timing_options.seed),
        cotangent_(Tensor::full(q_.shape(), 1, timing_options.dtype, timing_options.device)),
        mask_{.causal = timing_options.use_causal_mask && kind.capabilities.causal, .key_lengths = {}},
        attention_(kind.make(options, {.heads = timing_options.heads,
                                       .dim = timing_options.head_dim,
                                       .max_length = length,
                                       .rotary = true,
                                       .causal = mask_.causal})) {
    attention_->initialize(timing_options.seed);
    attention_->move(timing_options.device);
  }

  void run() {
    CachingAllocator& memory = get_device_allocator(q_.device());
    memory.reset_peak();
    const int64_t initial_bytes = memory.stats().active_bytes;
    const double seconds = measure_call_seconds(
        [&] {
          for (int64_t i = 0; i < call_count_; ++i) {
            backward(attention_->forward_with_input(x_, q_, k_, v_, mask_, {.seed = seed_}, "bench"),
                     cotangent_);
            for (const Tensor& x : {q_, k_, v_, x_})
              if (x.defined()) set_gradient(x, {});
            for (const Tensor& x : attention_->leaves()) set_gradient(x, {});
          }
        },
        q_.device());
    times_.push_back(seconds / static_cast<double>(call_count_));
    const int64_t input_bytes = (k_.raw_data() == q_.raw_data() ? 3 : 4) * q_.bytes();
    peak_bytes_ = memory.stats().peak_bytes - initial_bytes + input_bytes;
  }
  void clear_times() { times_.clear(); }
  double last_seconds() const { return times_.back(); }
  AttentionTiming summarize() const { return {length_, compute_median(times_), peak_bytes_}; }

 private:
  int64_t length_, call_count_;  // number of tokens, and number of calls per measurement
  Tensor q_, k_, v_;
  Tensor x_;  // the input of the layer; undefined if the kind does not read it
  uint64_t seed_;
  Tensor cotangent_;
  AttentionMask mask_;
  std::unique_ptr<Attention> attention_;
  std::vector<double> times_;
  int64_t peak_bytes_ = 0;
};

}  // namespace

std::vector<OptionSpec> make_attention_size_options() {
  const auto make_option = [](const char* name, int64_t value, const char* help, double max) {
    return OptionSpec{.name = name, .default_value = value, .help = help, .min = 1, .max = max};
  };
  return {make_option("shortest", 512, "smallest length", 1 << 24),
          make_option("longest", 65536, "largest length", 1 << 24),
          make_option("batch", 1, "sequences", 4096),
          make_option("heads", 8, "heads", 1024),
          make_option("head-dim", 64, "dimensions of a head", 1024),
          {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1}};
}

Tensor make_random_tensor(const Shape& shape, const char* name, Device device, DType dtype, uint64_t seed) {
  const Tensor x = Tensor::empty(shape);
  const RandomStream stream(seed, name);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return set_requires_grad(x.to(dtype).to(device));
}

void TimeSpread::add(int64_t length, double seconds_per_token) {
  if (length < kMinSpreadLength) return;
  fastest_ = count_ == 0 ? seconds_per_token : std::min(fastest_, seconds_per_token);
  slowest_ = std::max(slowest_, seconds_per_token);
  ++count_;
}

std::vector<AttentionTiming> measure_attention(const AttentionKind& kind, const OptionValues& options,
                                               const AttentionTimingOptions& timing_options) {
  std::vector<LengthMeasurement> measurements;
  for (int64_t length = timing_options.min_length; length <= timing_options.max_length; length *= 2) {
    measurements.emplace_back(kind, options, timing_options, length).run();
    // A pass over twice as many tokens is assumed to take at most four times as long.
    if (4 * measurements.back().last_seconds() > timing_options.max_pass_seconds) break;
  }
  for (LengthMeasurement& measurement : measurements) measurement.clear_times();
  for (int64_t i = 0; i < timing_options.repeats; ++i)
    for (LengthMeasurement& measurement : measurements) measurement.run();
  std::vector<AttentionTiming> samples;
  for (const LengthMeasurement& measurement : measurements) samples.push_back(measurement.summarize());
  return samples;
}

}  // namespace tapeformer
