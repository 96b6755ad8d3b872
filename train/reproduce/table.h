// The description of a table or a figure of a paper. The description contains the rows with their configs,
// the measurements, and the published values. train/reproduce/runner.h trains and measures the rows, and
// train/reproduce/render.h writes the files.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/config/config.h"
#include "train/report/chart_axis.h"

namespace tapeformer {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using NamedValues = std::vector<std::pair<std::string, double>>;
using NamedStrings = std::vector<std::pair<std::string, std::string>>;

struct Row {
  std::string name;              // name in --rows and in the names of run directories
  std::string config_path = {};  // config file, relative to the folder of configs; empty: no file
  std::vector<std::string> default_settings = {};  // settings ("table.key=value") that --set may change
  std::vector<std::string> fixed_settings = {};    // settings that --set may not change
  NamedValues paper_values = {};                   // published values, by Column::name
  bool is_trained = true;  // whether the model of the row is trained; requires Table::needs_training
  // Name of the line that shows this row in the printed table. Several rows can share a line. If `line_name`
  // is empty, the name of the line is `name`.
  std::string line_name = {};
};

struct Column {
  std::string name;        // name in table.json, such as "bits_per_dim"
  std::string label;       // heading in printed tables, such as "bits/dim"
  int decimal_places = 2;  // digits after the decimal point
  bool is_printed = true;  // whether printed tables have the column; table.json and table.csv always have it
  // Whether the value is a speed or a time, which depends on the machine and its load. A verification does
  // not compare it.
  bool is_speed = false;
};

struct Curve {
  std::string figure_name;  // Figure::name
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y)
};

// The results of one measurement for one row and one seed.
struct MeasurementResults {
  NamedValues values = {};                 // measured values, by Column::name
  NamedStrings texts = {};                 // results that are texts, by Column::name
  std::vector<Curve> curves = {};          // curves of the figures
  std::vector<std::string> pictures = {};  // names of PNG files in the folder of the table
  // The commit, machine, threads and date of the results. If `provenance` is null, those of this process are
  // stored.
  Json provenance = {};
};

// A row of a table, and the config that results from the row and one seed.
struct Trial {
  const Row& row;
  Config config;        // config of the row, with the settings of the command line and the seed
  std::string run_dir;  // run directory of the training run, if Table::needs_training is true
  // The result of the evaluation on the test split that ended the training run. The object contains the
  // commit, machine, threads and date of the training run, and `output`, the JSON output of `tapeformer
  // train`. The value is null if the training run evaluated another split, or if a training command of
  // another reproduction finished the run.
  Json test_evaluation = {};
};

// A measurement of a trial: `tapeformer` commands, and a function that reads the JSON output of the commands.
struct Measurement {
  std::string name;  // name of the results in the result store
  std::vector<Column> columns = {};
  // The arguments of each command. run_measurement() replaces these placeholders in the arguments:
  //   {run}     run directory of the trial
  //   {config}  path of the config file of the trial
  //   {limit}   value of the config key data.eval_limit
  //   {file}    path for a file in the output folder, without an extension
  // run_measurement() also appends common options, such as --json. The option --device is appended only if
  // the arguments do not contain it.
  std::vector<Words> commands = {};
  // If set, returns the commands of a trial, which replace `commands`.
  std::function<std::vector<Words>(const Trial&)> make_trial_commands = nullptr;
  // Returns the results of the measurement. `outputs` contains the output of each command of the measurement.
  std::function<MeasurementResults(const std::vector<Json>& outputs, const Trial&)> read_results = nullptr;
  std::vector<std::string> row_names = {};  // names of the measured rows; empty: all rows
  // Whether the measurement runs only for the first seed, because its results, such as speeds, do not depend
  // on the seed.
  bool measures_first_seed_only = false;
  // Returns the estimated time of the measurement in seconds, for --dry-run. `forward_seconds` is the
  // estimated time of the forward pass for one example. If estimate_seconds is null, the estimate is 0.
  std::function<double(double forward_seconds, const Trial&)> estimate_seconds = nullptr;
};

// Column names for a figure that shows one circle for each line of the printed table.
struct CircleColumns {
  // Names of the columns that contain the x and y coordinates of the circles. The error bar of a circle is
  // the standard deviation of y over the seeds.
  std::string x, y;
  std::string area;       // name of the column that contains the areas of the circles
  std::string area_unit;  // unit of the areas in the legend, such as "MiB"
};

struct Figure {
  std::string name, title;  // `name` is the file name without ".svg"
  Axis x, y;
  std::optional<CircleColumns> circles = {};  // if set, the figure has circles instead of curves
};

struct Table {
  std::string title;
  std::string source;                     // title of the paper, and number of its table or figure
  std::vector<std::string> notes = {};    // differences from the paper at this scale, one sentence each
  std::string reference_label = "paper";  // heading of the columns with the values of Row::paper_values
  bool needs_training = true;             // false: the measurements need no trained models
  std::vector<Row> rows = {};
  std::vector<Measurement> measurements = {};
  std::vector<Figure> figures = {};
};

}  // namespace tapeformer
