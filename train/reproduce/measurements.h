// Measurements that several tables in train/reproduce/tables use.
#pragma once

#include <string>
#include <vector>

#include "train/reproduce/reproduce.h"

namespace tapeformer {

inline constexpr double kBytesPerMebibyte = 1024.0 * 1024.0;

// A column of a table that shows an entry of the JSON output of a command.
struct OutputField {
  Column column;
  std::string key;    // name of the entry
  double factor = 1;  // multiplier of the value, for example 100 for a percentage
};

// Returns a measurement that runs one command and reads `fields` from its output. A field has no value if the
// entry is missing or not a number.
Measurement make_command_measurement(const std::string& name, const Words& command,
                                     const std::vector<OutputField>& fields);

// Returns a measurement that evaluates the run on the test split. `settings` override the config of the run,
// for example with "attention.rounds=8".
Measurement make_test_evaluation_measurement(const std::string& name, const std::vector<OutputField>& fields,
                                             const std::vector<std::string>& settings = {});
// Each of the next three functions returns one field of an evaluation: the bits/dim, the loss, or the
// accuracy.
OutputField make_test_bits_per_dim_field();
OutputField make_test_loss_field();
OutputField make_test_accuracy_field();

// Returns a measurement of the training time. Unless `figure` is empty, the training loss by step is also
// added to the figure with this name.
Measurement make_training_curve_measurement(const std::string& figure);

// Options of make_generation_measurement(). The measured value is the number of generated images per second
// or, if `measures_latency` is true, the time in seconds for all images.
struct GenerationMeasurementOptions {
  // Name and label of the table column, and the mode "recurrent" or "recompute".
  std::string column, label, mode;
  int64_t image_count = 1, batch_size = 1;
  std::string device = {};  // empty: the device of the table
  bool measures_latency = false;
  std::vector<std::string> row_names = {};
};
// Returns a measurement of the speed of generation. The measurement runs only for the first seed.
Measurement make_generation_measurement(const GenerationMeasurementOptions& speed);

// Returns the exponent of a power law that is fitted to (x, y): the slope of a least-squares line through
// (log x, log y). Uses the second half of the points, but at least the last three points. Returns NaN for
// fewer than two points.
double fit_power_law_exponent(const std::vector<std::pair<double, double>>& points);

// Returns the lengths shortest, 2 * shortest, 4 * shortest and so on, up to `longest`. Throws ConfigError if
// `longest` is less than `shortest`. The error message contains `option`, the name of the measurement option
// that sets `longest`.
std::vector<int64_t> list_doubled_lengths(const char* option, int64_t shortest, int64_t longest);

// Returns the columns "milliseconds_N" and "mebibytes_N" for each length N, and two columns for the fitted
// exponents.
std::vector<Column> make_scaling_columns(const std::vector<int64_t>& lengths);
// Converts measurements to values for the columns of make_scaling_columns(), and to one curve of the time and
// one curve of the memory. Both curves have the name `curve`. `rows` is a JSON array with one object for each
// length. Each object has the entries length, seconds and peak_bytes.
MeasurementResults read_scaling_results(const Json& rows, const std::string& curve);
// Returns the figures "time" and "memory", which show the curves of read_scaling_results(). `x` is the label
// of the x-axis.
std::vector<Figure> make_scaling_figures(const std::string& title, const std::string& x);

}  // namespace tapeformer
