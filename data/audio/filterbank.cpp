#include "data/audio/filterbank.h"

#include <kissfft/kiss_fftr.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/base/errors.h"
#include "core/cpu/vector_math.h"
#include "core/options/option_names.h"

namespace tapeformer {
namespace {

constexpr float kSampleScale = 32768;  // converts samples in [-1, 1) to the range of 16-bit integers
constexpr float kFloor = std::numeric_limits<float>::epsilon();

// A Fourier transform of real samples. Not thread-safe, because kiss_fftr() writes to the state.
class RealTransform {
 public:
  explicit RealTransform(int64_t size)
      : state_(kiss_fftr_alloc(static_cast<int>(size), 0, nullptr, nullptr), std::free),
        spectrum_(static_cast<size_t>(size / 2 + 1)) {
    if (!state_) throw OutOfMemoryError("filterbank: no memory for the Fourier transform");
  }
  // Computes the first size / 2 values of the power spectrum of `size` samples.
  void compute_power(const float* samples, float* power) {
    kiss_fftr(state_.get(), samples, spectrum_.data());
    for (size_t k = 0; k + 1 < spectrum_.size(); ++k)
      power[k] = spectrum_[k].r * spectrum_[k].r + spectrum_[k].i * spectrum_[k].i;
  }

 private:
  std::unique_ptr<kiss_fftr_state, void (*)(void*)> state_;
  std::vector<kiss_fft_cpx> spectrum_;
};

double convert_to_mel(double hz) {
  return 1127 * std::log1p(hz / 700);
}

// A triangular filter over the power spectrum, with weights for the FFT bins [first, first + weights.size()).
struct Triangle {
  int64_t first = 0;
  std::vector<float> weights;
};

double compute_high_edge(const FilterbankOptions& options) {
  return options.high_hz > 0 ? options.high_hz : static_cast<double>(options.rate) / 2 + options.high_hz;
}

std::vector<Triangle> mel_triangles(const FilterbankOptions& options, int64_t padded) {
  const double low = convert_to_mel(options.low_hz);
  const double step =
      (convert_to_mel(compute_high_edge(options)) - low) / static_cast<double>(options.bins + 1);
  const double width = static_cast<double>(options.rate) / static_cast<double>(padded);
  std::vector<Triangle> triangles(static_cast<size_t>(options.bins));
  for (size_t bin = 0; bin < triangles.size(); ++bin) {
    const double left = low + static_cast<double>(bin) * step, center = left + step, right = center + step;
    Triangle& triangle = triangles[bin];
    for (int64_t k = 0; k < padded / 2; ++k) {  // the filters do not use the FFT bin padded / 2
      const double at = convert_to_mel(width * static_cast<double>(k));
      if (at <= left || at >= right) continue;
      if (triangle.weights.empty()) triangle.first = k;
      triangle.weights.push_back(static_cast<float>(at <= center ? (at - left) / step : (right - at) / step));
    }
  }
  return triangles;
}

void check_options(const FilterbankOptions& options) {
  const auto require = [](bool good, const auto&... text) {
    if (!good) throw ConfigError(concat_text("filterbank: ", text...));
  };
  require(options.rate > 0, "expected a positive rate, found ", options.rate);
  require(options.frame_length() >= 2, name_option("FilterbankOptions::rate"), " = ", options.rate,
          ": frames of ", options.frame_ms, " ms hold fewer than 2 samples");
  require(options.frame_length() <= 1 << 20, "frames of ", options.frame_ms, " ms are too long");
  require(options.frame_shift() >= 1, name_option("FilterbankOptions::rate"), " = ", options.rate,
          ": a shift of ", options.shift_ms, " ms is less than a sample");
  require(options.bins >= 3, name_option("FilterbankOptions::bins"), ": expected at least 3, got ",
          options.bins);
  require(options.low_hz >= 0 && options.low_hz < compute_high_edge(options) &&
              compute_high_edge(options) <= static_cast<double>(options.rate) / 2,
          "expected 0 <= low < high <= half the rate, found ", options.low_hz, " to ",
          compute_high_edge(options), " Hz");
  require(options.dither >= 0, "expected dither of at least 0, found ", options.dither);
  require(options.preemphasis >= 0 && options.preemphasis <= 1, "expected preemphasis in [0, 1], found ",
          options.preemphasis);
}

bool all_filters_have_bins(const FilterbankOptions& options, int64_t padded, int64_t bins) {
  const double low = convert_to_mel(options.low_hz),
               step = (convert_to_mel(compute_high_edge(options)) - low) / static_cast<double>(bins + 1);
  const double width = static_cast<double>(options.rate) / static_cast<double>(padded);
  int64_t line = 0;
  for (int64_t bin = 0; bin < bins; ++bin) {
    const double left = low + static_cast<double>(bin) * step;
    while (line < padded / 2 && convert_to_mel(width * static_cast<double>(line)) <= left) ++line;
    if (line == padded / 2 || convert_to_mel(width * static_cast<double>(line)) >= left + 2 * step)
      return false;
  }
  return true;
}

// Throws ConfigError if a filter covers no FFT bin. The output of such a filter would be constant.
void check_bins(const FilterbankOptions& options, int64_t padded) {
  if (all_filters_have_bins(options, padded, options.bins)) return;
  int64_t max_bins = std::min(options.bins - 1, padded);
  while (max_bins > 0 && !all_filters_have_bins(options, padded, max_bins)) --max_bins;
  throw ConfigError(concat_text("filterbank: ", name_option("FilterbankOptions::bins"), ": expected at most ",
                                max_bins, " mel bins for the ", padded / 2, " FFT bins at ", options.rate,
                                " samples per second, got ", options.bins));
}

int64_t convert_to_sample_count(double milliseconds, int64_t rate) {
  return static_cast<int64_t>(static_cast<double>(rate) * 0.001 * milliseconds);
}

int64_t power_of_two(int64_t at_least) {
  int64_t result = 1;
  while (result < at_least) result *= 2;
  return result;
}

// Adds Gaussian noise with standard deviation `scale` to frame `index`. The noise is computed by the
// Box-Muller transform.
void add_noise(float* frame, int64_t length, float scale, const RandomStream& noise, int64_t index) {
  constexpr float kUnit = 0x1p-32f, kAngle = 6.2831853f * 0x1p-32f;
  const int64_t blocks = (length + 3) / 4;
  for (int64_t i = 0; i < blocks; ++i) {
    const PhiloxBlock bits = noise.block(static_cast<uint64_t>(index * blocks + i));
    float values[4];
    for (size_t pair = 0; pair < 2; ++pair) {
      const float u = (static_cast<float>(bits[2 * pair]) + 0.5f) * kUnit;
      const float radius = scale * std::sqrt(-2 * std::log(std::min(u, 1.0f)));
      const float angle = kAngle * static_cast<float>(bits[2 * pair + 1]);
      values[2 * pair] = radius * std::cos(angle);
      values[2 * pair + 1] = radius * std::sin(angle);
    }
    for (int64_t j = 0; j < std::min<int64_t>(4, length - 4 * i); ++j) frame[4 * i + j] += values[j];
  }
}

}  // namespace

int64_t FilterbankOptions::frame_length() const {
  return convert_to_sample_count(frame_ms, rate);
}
int64_t FilterbankOptions::frame_shift() const {
  return convert_to_sample_count(shift_ms, rate);
}

struct Filterbank::Tables {
  int64_t length, shift, padded;
  std::vector<float> window;        // (length)
  std::vector<Triangle> triangles;  // (bins)

  explicit Tables(const FilterbankOptions& options)
      : length(options.frame_length()),
        shift(options.frame_shift()),
        padded(power_of_two(options.frame_length())),
        triangles(mel_triangles(options, padded)) {
    for (int64_t i = 0; i < length; ++i)
      window.push_back(static_cast<float>(std::pow(
          0.5 - 0.5 * std::cos(2 * M_PI * static_cast<double>(i) / static_cast<double>(length - 1)), 0.85)));
  }
};

Filterbank::Filterbank(const FilterbankOptions& options) : options_(options) {
  check_options(options);
  check_bins(options, power_of_two(options.frame_length()));
  tables_ = std::make_unique<const Tables>(options);
}
Filterbank::Filterbank(Filterbank&&) noexcept = default;
Filterbank& Filterbank::operator=(Filterbank&&) noexcept = default;
Filterbank::~Filterbank() = default;

int64_t Filterbank::count_frames(int64_t samples) const {
  if (!options_.snip_edges) return (samples + tables_->shift / 2) / tables_->shift;
  return samples < tables_->length ? 0 : 1 + (samples - tables_->length) / tables_->shift;
}

namespace {

// Copies samples [start, start + length) of a signal to `frame` and multiplies them by kSampleScale. The
// signal has `count` samples and is mirrored at its ends. `samples` points to sample `first` of the signal.
void extract(const float* samples, int64_t first, int64_t count, int64_t start, int64_t length,
             float* frame) {
  if (start >= 0 && start + length <= count) {
    const float* from = samples + (start - first);
    for (int64_t i = 0; i < length; ++i) frame[i] = kSampleScale * from[i];
    return;
  }
  for (int64_t i = 0; i < length; ++i) {
    int64_t at = start + i;
    while (at < 0 || at >= count) at = at < 0 ? -at - 1 : 2 * count - 1 - at;
    frame[i] = kSampleScale * samples[at - first];
  }
}

float sum_of(const float* values, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

float dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

int64_t Filterbank::find_first_sample(int64_t frame) const {
  const int64_t centred = options_.snip_edges ? 0 : tables_->shift / 2 - tables_->length / 2;
  return frame * tables_->shift + centred;
}

Tensor Filterbank::compute(std::span<const float> samples, const RandomStream& noise) const {
  const auto count = static_cast<int64_t>(samples.size());
  return compute_frames({samples.data(), 0, count}, 0, count_frames(count), noise);
}

Tensor Filterbank::compute_frames(const Signal& signal, int64_t begin, int64_t end,
                                  const RandomStream& noise) const {
  const Tables& tables = *tables_;
  const Tensor features = Tensor::empty({end - begin, options_.dims()});
  std::vector<float> raw(static_cast<size_t>(tables.length)), frame(static_cast<size_t>(tables.padded), 0.0f);
  std::vector<float> power(static_cast<size_t>(tables.padded / 2));
  RealTransform transform(tables.padded);
  const auto preemphasis = static_cast<float>(options_.preemphasis);
  const float* window = tables.window.data();
  float* x = raw.data();
  float* y = frame.data();
  for (int64_t t = begin; t < end; ++t) {
    float* out = features.data<float>() + (t - begin) * options_.dims();
    extract(signal.samples, signal.first, signal.count, find_first_sample(t), tables.length, x);
    if (options_.dither > 0) add_noise(x, tables.length, static_cast<float>(options_.dither), noise, t);
    const float mean = sum_of(x, tables.length) / static_cast<float>(tables.length);
#pragma omp simd
    for (int64_t i = 0; i < tables.length; ++i) x[i] -= mean;
    if (options_.use_energy) *out++ = std::max(dot(x, x, tables.length), kFloor);
    y[0] = (x[0] - preemphasis * x[0]) * window[0];
#pragma omp simd
    for (int64_t i = 1; i < tables.length; ++i) y[i] = (x[i] - preemphasis * x[i - 1]) * window[i];
    transform.compute_power(y, power.data());
    for (const Triangle& triangle : tables.triangles)
      *out++ = std::max(dot(triangle.weights.data(), power.data() + triangle.first,
                            static_cast<int64_t>(triangle.weights.size())),
                        kFloor);
  }
  float* values = features.data<float>();
  const int64_t total = features.numel();
#pragma omp simd
  for (int64_t i = 0; i < total; ++i) values[i] = vmath::log(values[i]);
  return features;
}

FilterbankStream::FilterbankStream(const Filterbank& filterbank, const RandomStream& noise)
    : filterbank_(filterbank), noise_(noise) {}

Tensor FilterbankStream::push(std::span<const float> samples) {
  buffer_.insert(buffer_.end(), samples.begin(), samples.end());
  const int64_t length = filterbank_.options().frame_length();
  int64_t end = next_frame_;
  while (filterbank_.find_first_sample(end) + length <= this->sample_count()) ++end;
  return compute_until(end);
}

Tensor FilterbankStream::finish() {
  return compute_until(filterbank_.count_frames(sample_count()));
}

Tensor FilterbankStream::compute_until(int64_t end) {
  const Tensor result = filterbank_.compute_frames({buffer_.data(), buffer_start_, sample_count()},
                                                   next_frame_, std::max(next_frame_, end), noise_);
  next_frame_ = std::max(next_frame_, end);
  // The frames at the end of the signal contain mirrored samples of the signal, so the buffer keeps at least
  // the last 2 * frame_length() samples.
  const int64_t kept = std::min(filterbank_.find_first_sample(next_frame_),
                                sample_count() - 2 * filterbank_.options().frame_length());
  if (const int64_t drop = std::max<int64_t>(0, kept - buffer_start_); drop > 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + drop);
    buffer_start_ += drop;
  }
  return result;
}

}  // namespace tapeformer
