#include "data/speech/features.h"

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

void check_features(const char* op, const Tensor& features) {
  check(features.rank() == 2 && features.dtype() == DType::float32 && features.is_contiguous(), op,
        "expected contiguous float32 (frames, dims), found ", features.shape());
}

// Returns the coefficients of the filter that computes the time derivative of order `order`. The filter
// applies the first derivative `order` times, so it covers 2 * order * window + 1 frames. For order 0, the
// only coefficient is 1.
std::vector<float> delta_filter(int64_t order, int64_t window) {
  std::vector<double> filter = {1};
  double norm = 0;
  for (int64_t n = -window; n <= window; ++n) norm += static_cast<double>(n * n);
  for (int64_t i = 0; i < order; ++i) {
    std::vector<double> next(filter.size() + static_cast<size_t>(2 * window), 0.0);
    for (size_t a = 0; a < filter.size(); ++a)
      for (int64_t n = -window; n <= window; ++n)
        next[a + static_cast<size_t>(n + window)] += filter[a] * static_cast<double>(n) / norm;
    filter = next;
  }
  return {filter.begin(), filter.end()};
}

using DeltaFilters = std::vector<std::vector<float>>;

DeltaFilters make_delta_filters(int64_t order, int64_t window) {
  check(order >= 0 && order <= 10 && window >= 1 && window <= 1000, "add_deltas", "order ", order,
        " and window ", window, " are out of range");
  DeltaFilters filters;
  for (int64_t o = 0; o <= order; ++o) filters.push_back(delta_filter(o, window));
  return filters;
}

// The frames [first, count) of a signal. The shape of `values` is (count - first, dims).
struct Frames {
  const float* values;
  int64_t first, count, dims;
};

// Returns the frames [begin, end) with their derivatives.
Tensor compute_deltas(const Frames& frames, int64_t begin, int64_t end, const DeltaFilters& filters) {
  const int64_t dims = frames.dims, width = dims * static_cast<int64_t>(filters.size());
  const Tensor result = Tensor::zeros({end - begin, width});
  for (size_t o = 0; o < filters.size(); ++o) {
    const auto reach = static_cast<int64_t>(filters[o].size() / 2);
    for (int64_t t = begin; t < end; ++t) {
      float* out = result.data<float>() + (t - begin) * width + static_cast<int64_t>(o) * dims;
      for (int64_t n = -reach; n <= reach; ++n) {
        const float weight = filters[o][static_cast<size_t>(n + reach)];
        const int64_t at = std::clamp<int64_t>(t + n, 0, frames.count - 1);
        const float* row = frames.values + (at - frames.first) * dims;
#pragma omp simd
        for (int64_t d = 0; d < dims; ++d) out[d] += weight * row[d];
      }
    }
  }
  return result;
}

struct Range {
  int64_t first, last;
};

// Returns a random range with 0 <= first <= last <= size. The width of the range is uniformly distributed
// from 0 to min(max_width, size). The start is uniformly distributed over all positions at which a range of
// this width fits. Calls with different `i` use different random numbers of `stream`.
Range draw_range(const RandomStream& stream, int64_t i, int64_t max_width, int64_t size) {
  max_width = std::min(max_width, size);
  const auto number = static_cast<uint64_t>(2 * i);
  const auto width = static_cast<int64_t>(stream.uniform_below(number, static_cast<uint64_t>(max_width + 1)));
  const auto first =
      static_cast<int64_t>(stream.uniform_below(number + 1, static_cast<uint64_t>(size - width + 1)));
  return {first, first + width};
}

}  // namespace

Tensor add_deltas(const Tensor& features, int64_t order, int64_t window) {
  check_features("add_deltas", features);
  const DeltaFilters filters = make_delta_filters(order, window);
  return compute_deltas({features.data<float>(), 0, features.size(0), features.size(1)}, 0, features.size(0),
                        filters);
}

DeltaStream::DeltaStream(int64_t order, int64_t window) : filters_(make_delta_filters(order, window)) {}

Tensor DeltaStream::push(const Tensor& features, bool is_last) {
  check_features("DeltaStream", features);
  if (dims_ == 0) dims_ = features.size(1);
  check(features.size(1) == dims_, "DeltaStream", "expected ", dims_, " dims, found ", features.shape());
  buffer_.insert(buffer_.end(), features.data<float>(), features.data<float>() + features.numel());
  const int64_t count = first_ + static_cast<int64_t>(buffer_.size()) / dims_;
  const auto reach = static_cast<int64_t>(filters_.back().size() / 2);
  const int64_t end = is_last ? count : std::max(next_, count - reach);
  const Tensor result = compute_deltas({buffer_.data(), first_, count, dims_}, next_, end, filters_);
  next_ = end;
  if (const int64_t drop = next_ - reach - first_; drop > 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + drop * dims_);
    first_ += drop;
  }
  return result;
}

void FeatureStatistics::add(const Tensor& features) {
  check_features("FeatureStatistics", features);
  const auto dims = static_cast<size_t>(features.size(1));
  if (sums.empty()) {
    sums.assign(dims, 0);
    square_sums.assign(dims, 0);
  }
  check(sums.size() == dims, "FeatureStatistics", "expected ", sums.size(), " dims, found ",
        features.shape());
  frame_count += static_cast<double>(features.size(0));
  const float* row = features.data<float>();
  for (int64_t t = 0; t < features.size(0); ++t, row += dims)
    for (size_t d = 0; d < dims; ++d) {
      sums[d] += row[d];
      square_sums[d] += static_cast<double>(row[d]) * row[d];
    }
}

void FeatureStatistics::add(const FeatureStatistics& other) {
  if (other.sums.empty()) return;
  if (sums.empty()) {
    *this = other;
    return;
  }
  check(sums.size() == other.sums.size(), "FeatureStatistics", "expected ", sums.size(), " dims, found ",
        other.sums.size());
  frame_count += other.frame_count;
  for (size_t d = 0; d < sums.size(); ++d) {
    sums[d] += other.sums[d];
    square_sums[d] += other.square_sums[d];
  }
}

void normalize_features(const Tensor& features, const FeatureStatistics& statistics,
                        bool normalize_variance) {
  check_features("normalize", features);
  const auto dims = static_cast<size_t>(features.size(1));
  check(statistics.sums.size() == dims && statistics.frame_count > 0, "normalize", "statistics of ",
        statistics.sums.size(), " dims and ", statistics.frame_count, " frames for features ",
        features.shape());
  constexpr double kMinVariance = 1e-10;
  std::vector<float> means(dims), scales(dims, 1.0f);
  for (size_t d = 0; d < dims; ++d) {
    const double mean = statistics.sums[d] / statistics.frame_count;
    const double spread = statistics.square_sums[d] / statistics.frame_count - mean * mean;
    means[d] = static_cast<float>(mean);
    if (normalize_variance)
      scales[d] = spread < kMinVariance ? 0.0f : static_cast<float>(1 / std::sqrt(spread));
  }
  float* row = features.data<float>();
  for (int64_t t = 0; t < features.size(0); ++t, row += dims)
    for (size_t d = 0; d < dims; ++d) row[d] = (row[d] - means[d]) * scales[d];
}

int64_t find_non_finite_frame(const Tensor& features) {
  check_features("find_non_finite_frame", features);
  const float* const values = features.data<float>();
  const float* const end = values + features.numel();
  const float* const bad = std::find_if(values, end, [](float x) { return !std::isfinite(x); });
  return bad == end ? -1 : (bad - values) / features.size(1);
}

void apply_spec_augment(const Tensor& features, const SpecAugmentOptions& options, const RandomStream& stream,
                        int64_t bins) {
  check_features("spec_augment", features);
  const int64_t frames = features.size(0), dims = features.size(1);
  if (bins == 0) bins = dims;
  check(bins > 0 && dims % bins == 0, "spec_augment", dims, " dims are no multiple of ", bins, " bins");
  check(options.frequency_masks >= 0 && options.frequency_width >= 0 && options.time_masks >= 0 &&
            options.time_width >= 0 && options.time_share >= 0 && options.time_share <= 1,
        "spec_augment", "masks and widths must not be negative, and the share within [0, 1]");
  float* values = features.data<float>();
  int64_t drawn = 0;
  for (int64_t mask = 0; mask < options.frequency_masks; ++mask) {
    const Range range = draw_range(stream, drawn++, options.frequency_width, bins);
    for (int64_t t = 0; t < frames; ++t)
      for (int64_t d = 0; d < dims; d += bins)
        std::fill(values + t * dims + d + range.first, values + t * dims + d + range.last, 0.0f);
  }
  const auto max_width =
      std::min(options.time_width, static_cast<int64_t>(options.time_share * static_cast<double>(frames)));
  for (int64_t mask = 0; mask < options.time_masks; ++mask) {
    const Range range = draw_range(stream, drawn++, max_width, frames);
    std::fill(values + range.first * dims, values + range.last * dims, 0.0f);
  }
}

}  // namespace tapeformer
