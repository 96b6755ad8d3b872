#include "train/loop/step_status.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tapeformer {

StepStatus::StepStatus(const Communicator& processes, const std::vector<double>& losses,
                       const std::vector<double>& terms, const std::vector<double>& weights, int64_t tokens,
                       const StopRequest& stop)
    : values_(Tensor::zeros({kRows, processes.size()}, DType::float64)) {
  const int rank = processes.rank();
  for (size_t i = 0; i < losses.size(); ++i) {
    at(kLoss, rank) += weights[i] * losses[i];
    at(kTerms, rank) += weights[i] * terms[i];
    if (!std::isfinite(losses[i]) && at(kBadBatch, rank) == 0)
      at(kBadBatch, rank) = static_cast<double>(i + 1);
  }
  at(kTokens, rank) = static_cast<double>(tokens);
  at(kSignal, rank) = stop.signal;
  at(kTimeIsUp, rank) = stop.time_is_up;
}

double StepStatus::sum(Row row) const {
  const double* const first = &at(row, 0);
  return std::accumulate(first, first + values_.size(1), 0.0);
}

double StepStatus::loss() const {
  return sum(kLoss);
}

double StepStatus::terms() const {
  return sum(kTerms);
}

int64_t StepStatus::tokens() const {
  return static_cast<int64_t>(sum(kTokens));
}

StopRequest StepStatus::stop() const {
  const double* const signals = &at(kSignal, 0);
  return {.signal = static_cast<int>(*std::max_element(signals, signals + values_.size(1))),
          .time_is_up = at(kTimeIsUp, 0) != 0};
}

std::optional<StepStatus::NonFiniteLoss> StepStatus::non_finite_loss() const {
  for (int process = 0; process < values_.size(1); ++process)
    if (const double batch = at(kBadBatch, process); batch > 0)
      return NonFiniteLoss{process, static_cast<int64_t>(batch) - 1, at(kLoss, process)};
  return {};
}

}  // namespace tapeformer
