// Labels of an endless stream of frames: greedy CTC over SpeechStreams that are restarted, so that states and
// positions stay within the lengths that the model was trained on.
//
// A state is restarted in two places. After a pause, a new state starts where the energy rises. In speech
// without pauses, a second state starts before the window of the active state ends and takes the same frames.
// It becomes the active state at a step where both states give the blank and their newest labels are equal,
// or at the end of the window. Memory and time per frame do not depend on the length of the stream, and
// labels do not wait for later frames.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "models/speech_stream.h"

namespace tapeformer {

struct StreamDecoderOptions {
  int64_t window = 0;  // most frames of a state, at least kShortestWindow; 0: one state for all frames
  int64_t pause = 25;  // frames of low energy without a label that make a pause; 0: no restart at pauses
  // Natural logarithms of filterbank energies are feature * scale + offset, for the first features of a
  // frame. Empty: the features themselves.
  std::vector<double> scale = {}, offset = {};
};

// Compares the energy of frames with the lowest and the highest energy of the last ten seconds.
class EnergyTracker {
 public:
  // Takes the logarithm of the energy of the next frame. Returns the number of frames in a row, including
  // this one, whose energy is in the lower half of the range.
  int64_t push(double energy);
  void reset();

 private:
  struct Range {
    double low, high;
  };
  std::deque<Range> blocks_;  // ranges of one second each, the newest last
  int64_t block_frames_ = 0;  // frames in the newest block
  int64_t low_ = 0;
};

class StreamDecoder {
 public:
  static constexpr int64_t kShortestWindow = 50;

  // The model must outlive the decoder. Throws ConfigError for a window that is too short, or longer than
  // the model's cache of keys and values, and as SpeechStream.
  StreamDecoder(const SpeechModel& model, const StreamDecoderOptions& options);

  // Takes one float32 frame, (1, features), on the CPU. Returns the labels that begin with it, often none;
  // they are valid until the next call. Throws ShapeError as SpeechStream, and DivergedError for logits that
  // are not finite.
  const std::vector<int64_t>& push(const Tensor& frame);
  void reset();

  int64_t frames() const { return frames_; }
  int64_t restarts() const { return restarts_; }
  int64_t state_bytes() const;

 private:
  // A state and its newest labels. Counts are steps of the encoder.
  struct Lane {
    Lane(const SpeechModel& model, int64_t capacity) : stream(model, 1, capacity) {}
    // True when a step is complete. `number`: of the frame in the stream.
    bool push(const Tensor& frame, int64_t number);
    void reset();
    // The newest label if it began within the last `steps`, else the blank.
    int64_t recent(int64_t steps) const { return since_label <= steps ? label : kSpeechBlank; }

    SpeechStream stream;
    int64_t taken = 0;
    int64_t best = kSpeechBlank;   // class of the newest step
    int64_t begun = kSpeechBlank;  // label that begins with the newest step, or the blank
    int64_t label = kSpeechBlank, since_label = 0;
    int64_t blanks = 0;  // steps in a row
  };
  int64_t steps(int64_t frames) const { return frames / model_.options().subsampling; }
  double energy(const Tensor& frame) const;
  void step_active(const Tensor& frame);
  void restart_window();
  void start_after_pause(const Tensor& frame);
  void add(int64_t label);
  bool lanes_agree() const;
  void reconcile();

  const SpeechModel& model_;
  StreamDecoderOptions options_;
  int64_t context_;  // frames that both lanes take
  EnergyTracker tracker_;
  std::unique_ptr<Lane> active_, next_;
  bool overlaps_ = false;                               // next_ takes frames too
  bool pauses_ = false;                                 // since a pause began, the energy has been low
  Tensor previous_;                                     // the frame before
  int64_t repeated_ = kSpeechBlank, repeat_steps_ = 0;  // a label that a new lane may give a second time
  int64_t frames_ = 0, restarts_ = 0;
  std::vector<int64_t> labels_;
};

}  // namespace tapeformer
