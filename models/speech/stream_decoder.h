// Greedy CTC decoding of a stream of unlimited length. The decoder restarts the recurrent state of the model,
// so that positions stay within the sequence lengths of the training data.
//
// After a pause, the decoder restarts the state when the energy of the frames rises. In speech without
// pauses, a second state starts before the first state reaches its maximum number of frames. Both states then
// process the same frames. The second state replaces the first state at a step where both states predict the
// blank and have equal newest labels. If there is no such step, the second state replaces the first state at
// the maximum number of frames.
//
// Memory and time per frame do not depend on the length of the stream. Labels are emitted without lookahead.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "models/speech/stream.h"

namespace tapeformer {

struct StreamDecoderOptions {
  // Maximum number of frames that a recurrent state processes before the decoder replaces it. Must be at
  // least StreamDecoder::kMinWindowFrames, or 0 if one state processes the whole stream.
  int64_t max_window_frames = 0;
  // Minimum length of a pause in frames. Frames of a pause have low energy and no labels. If
  // `min_pause_frames` or `max_window_frames` is 0, the decoder does not restart at pauses.
  int64_t min_pause_frames = 25;
  // Scales and offsets that convert the first feature_scales.size() features of a frame to natural logarithms
  // of filterbank energies: log(energy) = feature * scale + offset. If `feature_scales` and `feature_offsets`
  // are empty, all features are natural logarithms of filterbank energies.
  std::vector<double> feature_scales = {}, feature_offsets = {};
};

// A counter of consecutive frames with low energy. The energy of a frame is low if it is at most the midpoint
// between the lowest and the highest energy of about the last 1000 frames (10 s).
class LowEnergyCounter {
 public:
  // Takes the logarithm of the energy of the next frame. Returns the number of consecutive frames with low
  // energy, up to and including this frame.
  int64_t push(double energy);
  void reset();

 private:
  struct EnergyRange {
    double low, high;
  };
  // Energy ranges of the most recent blocks of 100 frames. The last element is the newest block.
  std::deque<EnergyRange> energy_ranges_;
  int64_t block_frame_count_ = 0;       // frames in the newest block
  int64_t low_energy_frame_count_ = 0;  // consecutive frames of low energy
};

// A decoder of one stream. Not thread-safe.
class StreamDecoder {
 public:
  static constexpr int64_t kMinWindowFrames = 50;

  // The model must outlive the decoder. Throws OptionError if options.max_window_frames is invalid or exceeds
  // the capacity of the attention state. Also throws the errors of StreamingSpeechModel.
  StreamDecoder(const SpeechModel& model, const StreamDecoderOptions& options);

  // Processes one float32 frame, (1, features), on the CPU. Returns the labels that begin at this frame. The
  // returned reference is valid until the next call. Throws ShapeError if the shape or the dtype of the frame
  // is wrong, and DivergenceError if logits are not finite.
  const std::vector<int64_t>& push(const Tensor& frame);
  void reset();

  int64_t frame_count() const { return frame_count_; }
  int64_t restart_count() const { return restart_count_; }
  int64_t state_bytes() const;

 private:
  // A recurrent state of the model and the labels decoded with it. Counts are in steps of the encoder.
  struct Lane {
    Lane(const SpeechModel& model, int64_t capacity) : stream(model, 1, capacity) {}
    // Passes a frame to `stream`. Returns whether the frame completes a step. If logits are not finite,
    // throws DivergenceError, whose message contains the frame number `number`.
    bool push(const Tensor& frame, int64_t number);
    void reset();
    // Returns the newest label if it began at most `steps` steps ago, and otherwise the blank.
    int64_t recent_label(int64_t steps) const {
      return steps_since_label <= steps ? newest_label : kSpeechBlank;
    }

    StreamingSpeechModel stream;
    int64_t steps_taken = 0;              // steps since the last reset
    int64_t best_class = kSpeechBlank;    // most probable class of the newest step
    int64_t new_label = kSpeechBlank;     // label that begins with the newest step, or the blank
    int64_t newest_label = kSpeechBlank;  // newest label, or the blank before the first label
    int64_t steps_since_label = 0;        // steps since the newest label began
    int64_t blank_run_length = 0;         // consecutive steps whose best class is the blank
  };
  int64_t count_steps(int64_t frames) const { return frames / model_.options().subsampling; }
  double compute_energy(const Tensor& frame) const;
  void advance_active_lane(const Tensor& frame);
  void restart_window();
  void start_after_pause(const Tensor& frame);
  void emit_label(int64_t label);
  bool lanes_agree() const;
  void reconcile_labels();

  const SpeechModel& model_;
  StreamDecoderOptions options_;
  int64_t max_overlap_frames_;  // maximum number of frames that active_ and next_ process in parallel
  LowEnergyCounter low_energy_counter_;
  std::unique_ptr<Lane> active_, next_;
  bool lanes_overlap_ = false;  // whether both lanes process the frames
  bool is_in_pause_ = false;    // whether the decoder waits for the energy to rise after a pause
  Tensor previous_frame_;       // the previous frame, (1, features)
  // Label that is not emitted again while remaining_suppression_steps_ > 0.
  int64_t suppressed_label_ = kSpeechBlank;
  int64_t remaining_suppression_steps_ = 0;
  int64_t frame_count_ = 0, restart_count_ = 0;
  std::vector<int64_t> labels_;
};

}  // namespace tapeformer
