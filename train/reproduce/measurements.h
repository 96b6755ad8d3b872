// Measurements that several tables in train/reproduce/tables use.
#pragma once

#include <string>
#include <vector>

#include "train/reproduce/reproduce.h"

namespace tapeformer {

inline constexpr double kBytesPerMebibyte = 1024.0 * 1024.0;

// A table column with values from the JSON output of a command.
struct OutputField {
  Column column;
  std::string key;    // key of the value in the JSON output
  double factor = 1;  // the table shows value * factor; for example, 100 for a percentage
};

// Returns a measurement that runs `command` and reads `fields` from the JSON output of the command. If the
// output contains no number with the key OutputField::key, the column of the field has no value.
Measurement make_command_measurement(const std::string& name, const Words& command,
                                     const std::vector<OutputField>& fields);

// Returns a measurement that evaluates the run on the test split. `settings` override the config of the run,
// for example with "attention.rounds=8". If `settings` is empty and Trial::test_evaluation is not null, the
// measurement runs no command and reads its results from Trial::test_evaluation.
Measurement make_test_evaluation_measurement(const std::string& name, const std::vector<OutputField>& fields,
                                             const std::vector<std::string>& settings = {});
// Each of the next three functions returns one field of an evaluation: the bits/dim, the loss, or the
// accuracy.
OutputField make_test_bits_per_dim_field();
OutputField make_test_loss_field();
OutputField make_test_accuracy_field();

// Returns a measurement of the training time in seconds. If `figure` is not empty, the measurement also
// returns a curve of the training loss against the step, for the figure with the name `figure`.
Measurement make_training_curve_measurement(const std::string& figure);

// Options of make_generation_measurement(). The measured value is the time in seconds to generate all images
// if `measures_latency` is true, and the number of generated images per second otherwise.
struct GenerationMeasurementOptions {
  // `column` and `label` are the name and the label of the table column. `mode` is the value of the
  // command-line option --mode: "recurrent" or "recompute".
  std::string column, label, mode;
  int64_t image_count = 1, batch_size = 1;
  std::string device = {};  // value of --device; empty: the device of the reproduction
  bool measures_latency = false;
  std::vector<std::string> row_names = {};
};
// Returns a measurement of the speed of generation. The measurement runs only for the first seed.
Measurement make_generation_measurement(const GenerationMeasurementOptions& speed);

// Returns the exponent of a power law that is fitted to (x, y): the slope of a least-squares line through
// (log x, log y). The fit uses the second half of the points, or the last three points if the second half has
// fewer than three points. Returns NaN if there are fewer than two points.
double fit_power_law_exponent(const std::vector<std::pair<double, double>>& points);

// Returns the lengths shortest * 2^i, for i = 0, 1, 2, ..., that are at most `longest`. Throws ConfigError if
// `longest` is less than `shortest`. `option` is the name of the measurement option that sets `longest`,
// which the error message contains.
std::vector<int64_t> list_doubled_lengths(const char* option, int64_t shortest, int64_t longest);

// Returns a column "milliseconds_N" and a column "mebibytes_N" for each length N, and the columns
// "milliseconds_exponent" and "mebibytes_exponent" for the results of fit_power_law_exponent().
std::vector<Column> make_scaling_columns(const std::vector<int64_t>& lengths);
// Returns the values of the columns of make_scaling_columns(), and curves of the time and the memory against
// the length. Both curves have the name `curve`. `rows` is a JSON array with one object for each length. Each
// object contains the numbers "length", "seconds" and "peak_bytes".
MeasurementResults read_scaling_results(const Json& rows, const std::string& curve);
// Returns the figures "time" and "memory" for the curves of read_scaling_results(). The titles of both
// figures start with `title`. `x` is the label of the x-axis.
std::vector<Figure> make_scaling_figures(const std::string& title, const std::string& x);

}  // namespace tapeformer
