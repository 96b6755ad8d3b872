#include "models/speech/stream_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/options/option_names.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

constexpr int64_t kEnergyBlockFrames = 100, kEnergyBlocks = 10;
// An energy is low if it is at most lowest + kLowShare * (highest - lowest), where `lowest` and `highest` are
// the extremes of the recent energies.
constexpr double kLowShare = 0.5;
// Maximum number of frames that two lanes (StreamDecoder::Lane) process in parallel.
constexpr int64_t kMaxContext = 100;
// Two lanes agree only if their newest labels in the last kAgreement frames are equal.
constexpr int64_t kAgreement = 20;
// Two lanes can decode the same label up to kJitter frames apart.
constexpr int64_t kJitter = 10;

int64_t check_window(const SpeechModel& model, int64_t window) {
  const SpeechModelOptions& o = model.options();
  if (window != 0 && window < StreamDecoder::kMinWindowFrames)
    throw OptionError("window", concat_text("expected 0 or at least ", StreamDecoder::kMinWindowFrames,
                                            " frames, got ", window));
  if (o.encoder_kind == SpeechEncoderKind::transformer && window > o.max_frames &&
      !supports(o.encoder.attention, &AttentionCapabilities::has_constant_size_state))
    throw OptionError(
        "window", concat_text("expected at most ", name_option("SpeechModelOptions::max_frames"), " = ",
                              o.max_frames, " frames, the capacity of ", join_kind_names(o.encoder.attention),
                              " attention, got ", window));
  return window;
}

}  // namespace

int64_t LowEnergyCounter::push(double energy) {
  if (energy_ranges_.empty() || block_frame_count_ == kEnergyBlockFrames) {
    energy_ranges_.push_back({energy, energy});
    if (static_cast<int64_t>(energy_ranges_.size()) > kEnergyBlocks) energy_ranges_.pop_front();
    block_frame_count_ = 0;
  }
  ++block_frame_count_;
  EnergyRange& newest = energy_ranges_.back();
  newest = {std::min(newest.low, energy), std::max(newest.high, energy)};
  EnergyRange all = newest;
  for (const EnergyRange& block : energy_ranges_)
    all = {std::min(all.low, block.low), std::max(all.high, block.high)};
  low_energy_frame_count_ =
      energy <= all.low + kLowShare * (all.high - all.low) ? low_energy_frame_count_ + 1 : 0;
  return low_energy_frame_count_;
}

void LowEnergyCounter::reset() {
  energy_ranges_.clear();
  block_frame_count_ = low_energy_frame_count_ = 0;
}

bool StreamDecoder::Lane::push(const Tensor& frame, int64_t number) {
  if (!stream.push(frame)) return false;
  const Tensor logits = stream.logits().to(kCpu).to(DType::float32);
  const float* const first = logits.data<float>();
  if (!std::all_of(first, first + logits.numel(), [](float x) { return std::isfinite(x); }))
    throw DivergenceError(concat_text("the logits at frame ", number, " are not finite numbers"));
  const int64_t before = best_class;
  best_class = std::max_element(first, first + logits.numel()) - first;
  new_label = best_class != before ? best_class : kSpeechBlank;
  blank_run_length = best_class == kSpeechBlank ? blank_run_length + 1 : 0;
  ++steps_taken;
  ++steps_since_label;
  if (new_label != kSpeechBlank) {
    newest_label = new_label;
    steps_since_label = 0;
  }
  return true;
}

void StreamDecoder::Lane::reset() {
  stream.reset();
  steps_taken = steps_since_label = blank_run_length = 0;
  best_class = new_label = newest_label = kSpeechBlank;
}

StreamDecoder::StreamDecoder(const SpeechModel& model, const StreamDecoderOptions& options)
    : model_(model),
      options_(options),
      max_overlap_frames_(std::min(kMaxContext, check_window(model, options.max_window_frames) / 2)) {
  const int64_t capacity =
      options.max_window_frames > 0 ? std::max<int64_t>(count_steps(options.max_window_frames), 1) : 0;
  active_ = std::make_unique<Lane>(model, capacity);
  if (options.max_window_frames > 0) next_ = std::make_unique<Lane>(model, capacity);
  previous_frame_ = Tensor::zeros({1, model.options().features});
}

void StreamDecoder::reset() {
  active_->reset();
  if (next_) next_->reset();
  low_energy_counter_.reset();
  lanes_overlap_ = is_in_pause_ = false;
  suppressed_label_ = kSpeechBlank;
  frame_count_ = restart_count_ = 0;
}

int64_t StreamDecoder::state_bytes() const {
  return active_->stream.state_bytes() + (next_ ? next_->stream.state_bytes() : 0);
}

// Returns the logarithm of the sum of the filterbank energies.
double StreamDecoder::compute_energy(const Tensor& frame) const {
  const float* const x = frame.data<float>();
  const auto count =
      options_.feature_scales.empty() ? static_cast<size_t>(frame.numel()) : options_.feature_scales.size();
  double sum = std::numeric_limits<double>::min();
  for (size_t i = 0; i < count; ++i)
    sum += std::exp(options_.feature_scales.empty()
                        ? x[i]
                        : x[i] * options_.feature_scales[i] + options_.feature_offsets[i]);
  return std::log(sum);
}

void StreamDecoder::emit_label(int64_t label) {
  if (label == kSpeechBlank) return;
  const bool repeats = remaining_suppression_steps_ > 0 && label == suppressed_label_;
  remaining_suppression_steps_ = 0;
  if (!repeats) labels_.push_back(label);
}

bool StreamDecoder::lanes_agree() const {
  return active_->best_class == kSpeechBlank && next_->best_class == kSpeechBlank &&
         active_->recent_label(count_steps(kAgreement)) == next_->recent_label(count_steps(kAgreement));
}

// Prevents missing and repeated labels when next_ replaces active_ although lanes_agree() is false. A recent
// label that only next_ has decoded is emitted. A recent label that only active_ has decoded is suppressed
// for a short time, because next_ can still decode the same label.
void StreamDecoder::reconcile_labels() {
  const int64_t jitter = count_steps(kJitter), near = count_steps(kAgreement);
  const int64_t old_label = active_->recent_label(jitter), new_label = next_->recent_label(jitter);
  if (old_label == kSpeechBlank && new_label != active_->recent_label(near)) {
    emit_label(new_label);
  } else if (new_label == kSpeechBlank && old_label != next_->recent_label(near)) {
    suppressed_label_ = old_label;
    remaining_suppression_steps_ = jitter;
  }
}

void StreamDecoder::restart_window() {
  if (!lanes_overlap_ &&
      active_->steps_taken >= count_steps(options_.max_window_frames - max_overlap_frames_)) {
    next_->reset();
    lanes_overlap_ = true;
    return;
  }
  const bool agree =
      lanes_overlap_ && next_->steps_taken >= count_steps(max_overlap_frames_ / 2) && lanes_agree();
  if (!agree && (!lanes_overlap_ || active_->steps_taken < count_steps(options_.max_window_frames))) return;
  if (!agree) reconcile_labels();
  std::swap(active_, next_);
  lanes_overlap_ = false;
  ++restart_count_;
}

void StreamDecoder::advance_active_lane(const Tensor& frame) {
  if (!active_->push(frame, frame_count_)) return;
  if (remaining_suppression_steps_ > 0) --remaining_suppression_steps_;
  emit_label(active_->new_label);
}

// Starts a new state with the previous frame and `frame`. The previous frame is included, because training
// recordings begin shortly before the speech.
void StreamDecoder::start_after_pause(const Tensor& frame) {
  active_->reset();
  ++restart_count_;
  advance_active_lane(previous_frame_);
  advance_active_lane(frame);
}

const std::vector<int64_t>& StreamDecoder::push(const Tensor& frame) {
  check(frame.shape() == previous_frame_.shape() && frame.dtype() == DType::float32, "StreamDecoder",
        "frame ", frame.shape(), " of ", name_of(frame.dtype()), " must be ", previous_frame_.shape(),
        " of float32");
  labels_.clear();
  ++frame_count_;
  if (options_.max_window_frames == 0) {
    advance_active_lane(frame);
    return labels_;
  }
  const int64_t low = options_.min_pause_frames > 0 ? low_energy_counter_.push(compute_energy(frame)) : 0;
  const int64_t steps_before = active_->steps_taken;
  const bool starts = is_in_pause_ && low == 0;
  if (starts && active_->blank_run_length == steps_before) {
    start_after_pause(frame);
  } else {
    if (lanes_overlap_) next_->push(frame, frame_count_);
    advance_active_lane(frame);
  }
  if (starts) is_in_pause_ = false;
  previous_frame_.copy_from(frame);
  if (active_->steps_taken == steps_before) return labels_;
  const int64_t pause = count_steps(options_.min_pause_frames);
  if (options_.min_pause_frames > 0 && low >= options_.min_pause_frames &&
      std::min(active_->blank_run_length, active_->steps_taken) >= pause) {
    // Resets the state, so that the labels after the pause do not depend on the silence.
    active_->reset();
    lanes_overlap_ = false;
    is_in_pause_ = true;
  } else {
    restart_window();
  }
  return labels_;
}

}  // namespace tapeformer
