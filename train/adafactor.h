// Adafactor (Shazeer and Stern 2018): the second moments of a matrix are the product of the means of its rows
// and columns, and steps are relative to the size of the parameters.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "train/config/config.h"

namespace tapeformer {

// With g the scaled gradient, m = step^decay_rate and rms(x) = sqrt(mean(x²)):
//   row    = row + (mean(g² over columns) - row) / m     (matrices: the last two dimensions)
//   column = column + (mean(g² over rows) - column) / m
//   second = row column / mean(row)
//   u = g / sqrt(second), divided by max(1, rms(u) / update_clip)
//   parameter = shrink * parameter - rate * max(1e-3, rms(parameter)) * u
// The forms differ in the rate, in the decay of weights and in the terms that avoid divisions by 0:
// - "pytorch", torch.optim.Adafactor: the rate is min(lr, 1 / sqrt(step)); shrink = 1 - lr weight_decay;
//   mean(row) is at least the epsilon of the dtype, and `second` at least its square.
// - "trax": the rate is lr; shrink = 1 - weight_decay; 1e-30 is added to g².
class Adafactor {
 public:
  Adafactor(const OptimizerConfig& config, const std::vector<Tensor>& parameters);

  // Copies the coefficients of step `step`, counted from 1, to the device.
  void prepare(double lr, int64_t step);
  // Updates parameter `index` with its gradient times `scale`, a float64 scalar on the device. Reads the
  // coefficients on the device.
  void apply(size_t index, const Tensor& parameter, const Tensor& gradient, const Tensor& scale) const;

  // Returns the second moments of a parameter: "row" and "column" for matrices, "second" for vectors.
  std::vector<std::pair<std::string, Tensor>> state(size_t index) const;

 private:
  struct Moments {
    Tensor row, column;  // of a matrix
    Tensor second;       // of a vector
  };
  // Returns g / sqrt(second) after an update of the moments.
  Tensor update(const Moments& moments, const Tensor& g) const;
  // Returns a coefficient as a scalar tensor.
  Tensor coefficient(int64_t index) const;

  OptimizerConfig config_;
  std::vector<Moments> moments_;
  Tensor coefficients_;  // 1 / m, rate, shrink
};

}  // namespace tapeformer
