// The optimizer Adafactor (Shazeer and Stern 2018). For a matrix, the optimizer stores only the means of the
// second moments over rows and over columns. The size of a step is proportional to the root mean square of
// the parameter.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "train/config/config.h"

namespace tapeformer {

// A step updates a matrix as follows. g is the scaled gradient, m = step^decay_rate, and
// rms(x) = sqrt(mean(x²)):
//   row_means = row_means + (mean(g² over columns) - row_means) / m
//   column_means = column_means + (mean(g² over rows) - column_means) / m
//   second_moment = row_means column_means / mean(row_means)
//   u = g / sqrt(second_moment), divided by max(1, rms(u) / update_clip)
//   parameter = shrink * parameter - rate * max(1e-3, rms(parameter)) * u
// Rows and columns are the last two dimensions of a parameter. Scalars and vectors have no rows and columns.
// The update of a scalar or vector uses
//   second_moment = second_moment + (g² - second_moment) / m
//
// optimizer.form selects the rate, `shrink` and the terms that avoid a division by 0:
// - "pytorch", as torch.optim.Adafactor: rate = min(lr, 1 / sqrt(step)); shrink = 1 - lr weight_decay;
//   mean(row_means) is clamped to at least e, and `second_moment` to at least e², where e is the machine
//   epsilon of the dtype.
// - "trax", as in Trax: rate = lr; shrink = 1 - weight_decay; 1e-30 is added to g².
class Adafactor {
 public:
  Adafactor(const OptimizerConfig& config, const std::vector<Tensor>& parameters);

  // Computes the coefficients 1 / m, `rate` and `shrink` of a step on the device of the parameters. The first
  // step has number 1.
  void prepare_step(double lr, int64_t step);
  // Updates parameter `index` with `scale` times its gradient. `scale` is a float64 scalar on the device.
  // Call prepare_step() first.
  void update_parameter(size_t index, const Tensor& parameter, const Tensor& gradient,
                        const Tensor& scale) const;

  // Returns the second moments of a parameter: "row" and "column" if the rank of the parameter is at least 2,
  // and "second" otherwise.
  std::vector<std::pair<std::string, Tensor>> state(size_t index) const;

 private:
  // Running means of the squared gradient of one parameter.
  struct Moments {
    Tensor row_means, column_means;  // defined for parameters of rank 2 or more
    Tensor second_moment;            // defined for scalars and vectors
  };
  // Updates the moments with the scaled gradient `g`. Returns `g` divided by the square root of the estimated
  // second moment of each element.
  Tensor update_moments(const Moments& moments, const Tensor& g) const;
  Tensor get_coefficient(int64_t index) const;

  OptimizerConfig config_;
  std::vector<Moments> moments_;
  // A tensor of shape (3,) that contains 1 / m, `rate` and `shrink` of the current step.
  Tensor coefficients_;
};

}  // namespace tapeformer
