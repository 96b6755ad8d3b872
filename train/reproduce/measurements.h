// Measurements for the tables in tables/.
#pragma once

#include <string>
#include <vector>

#include "train/reproduce/reproduce.h"

namespace tapeformer {

inline constexpr double kMebi = 1024.0 * 1024.0;

// A column and the number in the output of a command that fills it.
struct Field {
  Column column;
  std::string key;    // name in the JSON object
  double factor = 1;  // of the number, such as 100 for a percentage
};

// Returns a measurement of one command. Fields without a number in the output have no value.
Measurement command_measurement(const std::string& name, const Words& command,
                                const std::vector<Field>& fields);

// Evaluates the run on the test split with further settings ("attention.rounds=8").
Measurement test_evaluation(const std::string& name, const std::vector<Field>& fields,
                            const std::vector<std::string>& settings = {});
// Fields of an evaluation.
Field bits_per_dim();
Field test_loss();
Field test_accuracy();

// Measures the training time, and adds the training loss by step to a figure, unless its name is empty.
Measurement training_curve(const std::string& figure);

// Measures the speed of generation in images per second, or in seconds per image if `latency` is true.
struct GenerationSpeed {
  std::string column, label, mode;  // mode: "recurrent" or "recompute"
  int64_t images = 1, batch = 1;
  std::string device = {};  // empty: the device of the table
  bool latency = false;
  std::vector<std::string> rows = {};
};
Measurement generation_speed(const GenerationSpeed& speed);

// Returns the slope of a straight line through log y by log x, fitted to the points with the largest x: at
// least three points and at least half of the points. NaN for fewer than two points.
double fitted_exponent(const std::vector<std::pair<double, double>>& points);

// Returns powers of two times `shortest` up to `longest`.
std::vector<int64_t> doubling(int64_t shortest, int64_t longest);

// Seconds and memory by length. Columns seconds_N and bytes_N, in milliseconds and MiB, and the fitted
// exponents; curves of the figures "time" and "memory". `rows` is a list with the entries length, seconds and
// peak_bytes.
std::vector<Column> scaling_columns(const std::vector<int64_t>& lengths);
Measured scaling_results(const Json& rows, const std::string& curve);
std::vector<Figure> scaling_figures(const std::string& title, const std::string& x);

}  // namespace tapeformer
