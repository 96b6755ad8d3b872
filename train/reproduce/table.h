// The description of a table: rows with their configs, measurements, and published values. table_file.h reads
// it from a TOML file, runner.h trains and measures the rows, and render.h writes the files.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/command_options.h"
#include "train/report/chart_axis.h"
#include "train/reproduce/values.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

using Words = std::vector<std::string>;

inline constexpr char kNoValue[] = "–";  // text of a cell without a value

// The contents of the file of a table, with those of the files that it extends, at all scales.
struct TableFile {
  std::string name;  // stem of the file
  std::filesystem::path path;
  Json contents;

  std::string summary() const { return contents.value("summary", ""); }
};

// The settings of `tapeformer reproduce`.
struct ReproductionOptions {
  std::string scale = "smoke";               // one of list_table_scales()
  std::filesystem::path config_folder = {};  // folder with the configs of the experiments
  std::filesystem::path output_folder = {};  // folder for the files and the runs of the table
  std::filesystem::path runs_folder = {};    // folder of the runs; empty: `runs` in `output_folder`
  std::vector<int64_t> seeds = {};           // one training run per row and seed
  std::vector<std::string> row_names = {};   // empty: all rows
  int64_t max_parallel_jobs = 1;             // maximum number of training runs at the same time
  std::string device = "cpu";                // --device of all commands
  DataAccessOptions data_access = {""};
  bool quiet = false;              // disables the printing of progress
  ConfigOverrides overrides = {};  // --set options of config keys, and other options
  Words all_config_settings = {};  // all --set options of the command line, which are written to table.json
};

struct Row {
  std::string name;                                // name in --rows and in the names of run directories
  std::string line = {};                           // line of the printed table; several rows can share it
  std::string config_path = {}, config_name = {};  // path, and name in table.json; empty: no file
  Words settings = {};                             // settings ("table.key=value") that --set may change
  Words fixed = {};                                // settings that --set may not change; with placeholders
  // More fixed settings of an earlier training, whose weights the training of the row starts from. If empty,
  // the weights are random.
  Words pretraining = {};
  std::map<std::string, double> published = {};  // published values, by Column::name
  bool is_trained = true;                        // whether a model of the row is trained
  Lookup variables = {};                         // variables of the row, and config keys without `fixed`
};

// A column, and the way to its value from the records of a measurement.
struct Column {
  std::string name;        // name in table.json, such as "bits_per_dim"
  std::string label = {};  // heading in printed tables, such as "bits/dim"
  int64_t digits = 2;      // digits after the decimal point
  bool printed = true;     // whether printed tables have the column; table.json and table.csv always have it
  // In a sweep, the printed x: "ends" (the first, the middle and the last), or a number. If empty: all.
  std::string print_at = {};
  bool speed = false;  // whether the value depends on the machine, so that a verification does not compare it
  std::string key = {};         // field of the records, such as "accuracy" or "cases.0.state_bytes"
  std::string split = {};       // if not empty, only records with this value of the field "split" count
  std::string before = {};      // if not empty, only records before the first record with this split count
  int64_t at = 0;               // if not 0, only the record of a sweep with this x counts
  std::string reduce = "last";  // first, last, lowest, highest, median, or exponent (of a power law of x)
  double factor = 1;            // the value is multiplied by the factor, for example 100 for a percentage
  std::string text = {};        // if not empty, the text of the column; can contain variables of the row
  // If not empty, the value is the published value of this column divided by the measured one.
  std::string published_ratio = {};
};

// A curve for each row, from the records that contain the field `y`. Its x is the last value of the field
// `x`.
struct CurveSource {
  std::string figure;  // Figure::name
  std::string x = "x";
  std::string y = {};
  std::string split = {};  // as Column::split
  double factor = 1;       // factor of y
  bool sum_x = false;      // x is the sum of its field over the earlier records
};

struct MeasurementKind;

struct Measurement {
  std::string name;  // name of the results in the result store
  const MeasurementKind* kind = nullptr;
  Json options = {};  // options of the kind, with placeholders
  std::vector<Column> columns = {};
  std::vector<CurveSource> curves = {};
  std::vector<int64_t> sweep = {};  // values of the placeholder {x}
  Words row_names = {};             // measured rows

  bool applies_to(const Row& row) const {
    return std::find(row_names.begin(), row_names.end(), row.name) != row_names.end();
  }
};

struct Figure {
  std::string name, title = {};  // `name` is the file name without ".svg"
  Axis x = {}, y = {};
  // If not empty, the figure has a circle for each line of the printed table: the columns of its coordinates
  // and of its area, and the unit of the area. The error bar is the standard deviation of y over the seeds.
  std::string circle_x = {}, circle_y = {}, circle_area = {}, area_unit = {};
};

struct Table {
  std::string name, title = {};
  std::string source = {};           // title of the paper, and number of its table or figure
  Words notes = {};                  // differences from the paper at this scale, one sentence each
  std::string reference = "paper";   // heading of the columns with published values
  std::vector<int64_t> seeds = {1};  // default of --seeds
  std::vector<Row> rows = {};
  std::vector<Measurement> measurements = {};
  std::vector<Figure> figures = {};
};

}  // namespace tapeformer
