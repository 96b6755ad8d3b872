#include "train/loop/epoch_clock.h"

#include <ctime>

namespace tapeformer {
namespace {

double read_processor_clock() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

StepTimer::StepTimer() : start_(std::chrono::steady_clock::now()), cpu_start_(read_processor_clock()) {}

double StepTimer::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double StepTimer::cpu_seconds() const {
  return read_processor_clock() - cpu_start_;
}

TrainingState::EpochTimes EpochTimeAccumulator::finish_epoch() {
  const TrainingState::EpochTimes finished = times_;
  times_ = {.last_epoch_seconds = finished.seconds};
  return finished;
}

}  // namespace tapeformer
