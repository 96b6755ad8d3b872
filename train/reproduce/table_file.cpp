#include "train/reproduce/table_file.h"

#include <algorithm>

#include "core/base/errors.h"
#include "data/files/file.h"
#include "models/attention/attention.h"
#include "train/config/parse.h"
#include "train/config/value.h"
#include "train/reproduce/measurement_kind.h"
#include "train/reproduce/table_settings.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxExtends = 8;
constexpr char kTables[] = "tables", kToml[] = ".toml";

// Reads a file and the files that it extends. Entries of a file replace those of its base; entries of its
// variables replace single variables.
Json read_contents(const fs::path& path, int depth = 0) {
  if (depth > kMaxExtends) throw ConfigError(path.string() + ": extends: the files extend each other");
  Json contents = Json::parse(read_toml_as_json(path.string()));
  const auto base_name = contents.find("extends");
  if (base_name == contents.end()) return contents;
  if (!base_name->is_string()) throw ConfigError(path.string() + ": extends: expected the name of a file");
  Json base = read_contents(path.parent_path() / base_name->get<std::string>(), depth + 1);
  for (const auto& [key, value] : contents.items())
    if (key == "variables" && value.is_object() && base.contains(key))
      base[key].update(value);
    else
      base[key] = value;
  base.erase("extends");
  return base;
}

TableFile read_path(const fs::path& path) {
  TableFile file{path.stem().string(), path, read_contents(path)};
  if (!file.contents.value("variables", Json::object()).is_object() ||
      !file.contents.value("measure", Json::object()).is_object())
    throw ConfigError(path.string() + ": [variables] and [measure] are tables");
  return file;
}

// The keys of a row, or of a task, which is combined with each row.
struct RowKeys {
  std::string name, suffix, line, config, attention_kinds;
  Words tasks, rows;
  bool trained = true;
};

RowKeys read_row_keys(const Json& json, const std::string& where) {
  RowKeys keys;
  read_keys(json, where, {"settings", "fixed", "pretraining", "variables", "published"}, "name", keys.name,
            "line", keys.line, "config", keys.config, "tasks", keys.tasks, "trained", keys.trained,
            "attention_kinds", keys.attention_kinds);
  return keys;
}

RowKeys read_task_keys(const Json& json, const std::string& where) {
  RowKeys keys;
  read_keys(json, where, {"settings", "fixed", "pretraining", "variables"}, "name", keys.name, "suffix",
            keys.suffix, "config", keys.config, "rows", keys.rows);
  return keys;
}

Column read_column_keys(const Json& json, const std::string& where) {
  Column column;
  read_keys(json, where, {}, "name", column.name, "label", column.label, "digits", column.digits, "printed",
            column.printed, "print_at", column.print_at, "speed", column.speed, "key", column.key, "split",
            column.split, "before", column.before, "at", column.at, "reduce", column.reduce, "factor",
            column.factor, "text", column.text, "published_ratio", column.published_ratio);
  if (!is_listed({"first", "last", "lowest", "highest", "median", "exponent"}, column.reduce))
    throw ConfigError(where + ": reduce: unknown value \"" + column.reduce + "\"");
  if (column.label.empty()) column.label = column.name;
  if (column.key.empty()) column.key = column.name;
  return column;
}

CurveSource read_curve_keys(const Json& json, const std::string& where) {
  CurveSource curve;
  read_keys(json, where, {}, "figure", curve.figure, "x", curve.x, "y", curve.y, "split", curve.split,
            "factor", curve.factor, "sum_x", curve.sum_x);
  return curve;
}

Figure read_figure(const Json& json, const std::string& where) {
  Figure figure;
  std::string x_scale = "linear", y_scale = "linear";
  read_keys(json, where, {}, "name", figure.name, "title", figure.title, "x", figure.x.label, "y",
            figure.y.label, "x_scale", x_scale, "y_scale", y_scale, "circle_x", figure.circle_x, "circle_y",
            figure.circle_y, "circle_area", figure.circle_area, "area_unit", figure.area_unit);
  figure.x.scale = parse_scale(x_scale);
  figure.y.scale = parse_scale(y_scale);
  return figure;
}

void append(Words& to, const Words& from) {
  to.insert(to.end(), from.begin(), from.end());
}

bool includes(const Words& chosen, const std::string& name) {
  return chosen.empty() || is_listed(chosen, name);
}

// A row, with the names of its entry in `rows` and of its task.
struct PlacedRow {
  Row row;
  std::string base, task;
  bool first_of_line;
};

class TableReader {
 public:
  TableReader(const TableFile& file, const ReproductionOptions& options, const Json& set_variables)
      : file_(file), options_(options), json_(select_scale(file.contents, options.scale)) {
    Json variables = json_.value("variables", Json::object());
    const Json measures = json_.value("measure", Json::object());
    for (const auto& [name, measure] : measures.items()) variables[name] = measure.at("value");
    variables.update(set_variables);
    variables_ = make_lookup(variables);
  }

  Table read() {
    Table table{.name = file_.name, .title = file_.name};
    std::string summary;
    Words settable, reserved;
    read_keys(json_, where("table"),
              {"settings", "fixed", "variables", "measure", "rows", "tasks", "measurements", "figures"},
              "title", table.title, "summary", summary, "source", table.source, "notes", table.notes,
              "reference", table.reference, "seeds", table.seeds, "config", config_, "trains", trains_,
              "settable", settable, "reserved", reserved);
    read_rows();
    for (const PlacedRow& placed : rows_) table.rows.push_back(placed.row);
    for (const Json& one : list("measurements")) table.measurements.push_back(read_measurement(one));
    for (const Json& one : list("figures"))
      table.figures.push_back(read_figure(fill_json(one, variables_), where("figures")));
    const Lookup& first = table.rows.front().variables;
    table.title = fill_text(table.title, first);
    table.source = fill_text(table.source, first);
    table.notes = fill_texts(table.notes, first);
    return table;
  }

 private:
  std::string where(const std::string& part) const { return file_.path.string() + ": " + part; }

  Json list(const char* key) const {
    Json found = json_.value(key, Json::array());
    if (!found.is_array())
      throw ConfigError(where(key) + ": expected a list of tables, such as [[" + key + "]]");
    return found;
  }

  void read_rows() {
    Json tasks = list("tasks");
    if (tasks.empty()) tasks.push_back(Json::object());
    for (const Json& row : list_row_entries()) {
      const RowKeys keys = read_row_keys(row, where("rows"));
      for (const Json& task : tasks) {
        const RowKeys task_keys = read_task_keys(task, where("tasks"));
        if (includes(keys.tasks, task_keys.name) && includes(task_keys.rows, keys.name))
          add_row(row, keys, task, task_keys);
      }
    }
    for (const Json& task : tasks)
      check_names("tasks", "row", read_task_keys(task, where("tasks")).rows, &PlacedRow::base);
    if (rows_.empty()) throw ConfigError(where("rows") + ": expected at least one row, [[rows]]");
  }

  // Appends the settings `key` of the table, the task and the row. A placeholder of a list becomes its
  // elements. Other placeholders are filled if `fills` is true.
  void append_settings(const char* key, bool fills, const Json& task, const Json& row,
                       const Lookup& variables, Words& to) const {
    for (const Json* const part : {&json_, &task, &row}) {
      const Json settings = part->value(key, Json::array());
      for (const Json& setting : settings.is_array() ? settings : Json::array({settings})) {
        const Json filled = fill_json(setting, variables);
        if (filled.is_array())
          append(to, filled.get<Words>());
        else
          to.push_back((fills ? filled : setting).get<std::string>());
      }
    }
  }

  // Returns the rows of the file, with one row for each kind or variant of `attention_kinds` that is no row.
  Json list_row_entries() const {
    const Json written = list("rows");
    Words names;
    for (const Json& json : written) names.push_back(json.value("name", ""));
    Json entries = Json::array();
    for (const Json& json : written) {
      const std::string chosen = json.value("attention_kinds", "");
      if (!is_listed({"", "all", "causal"}, chosen))
        throw ConfigError(where("rows") + ": attention_kinds: expected \"all\" or \"causal\"");
      if (chosen.empty()) entries.push_back(json);
      for (const AttentionKind& kind : list_attention_kinds()) {
        if (chosen.empty() || (chosen == "causal" && !kind.capabilities.causal)) continue;
        std::vector<AttentionVariant> variants = kind.variants;
        if (variants.empty()) variants = {{kind.name, {}}};
        for (const auto& [name, options] : variants) {
          if (is_listed(names, name)) continue;
          Json entry = json;
          entry["name"] = name;
          entry["fixed"].push_back("model.attention=" + kind.name);
          for (const auto& [key, value] : options)
            entry["fixed"].push_back("attention." + key + "=" + format_option_value(value));
          entries.push_back(entry);
        }
      }
    }
    return entries;
  }

  void add_row(const Json& json, const RowKeys& keys, const Json& task_json, const RowKeys& task) {
    Json variables = task_json.value("variables", Json::object());
    variables.update(json.value("variables", Json::object()));
    variables["row"] = keys.name;
    const Lookup plain = make_lookup(variables, variables_);
    Row row{.name = keys.name + task.suffix,
            .line = keys.line.empty() ? keys.name : keys.line,
            .is_trained = trains_ && keys.trained};
    const std::string place = where("row \"" + row.name + "\"");
    if (row.name.empty() || row.name.find_first_of("/, ") != std::string::npos)
      throw ConfigError(place + ": expected a name without spaces, commas and slashes");
    for (const PlacedRow& placed : rows_)
      if (placed.row.name == row.name) throw ConfigError(place + ": the name occurs twice");
    append_settings("settings", true, task_json, json, plain, row.settings);
    append_settings("fixed", false, task_json, json, plain, row.fixed);
    append_settings("pretraining", false, task_json, json, plain, row.pretraining);
    const std::string config = !keys.config.empty()   ? keys.config
                               : !task.config.empty() ? task.config
                                                      : config_;
    find_config(fill_text(config, plain), place, row);
    const Json published = json.value("published", Json::object());
    for (const auto& [column, value] : published.items()) {
      if (!value.is_number()) throw ConfigError(place + ": published." + column + ": expected a number");
      row.published[column] = value.get<double>();
    }
    row.variables = add_config_keys(plain, options_, row);
    const bool is_first = std::none_of(rows_.begin(), rows_.end(),
                                       [&](const PlacedRow& placed) { return placed.row.line == row.line; });
    rows_.push_back({row, keys.name, task.name, is_first});
  }

  // Finds a config file, first in the folder of the table and then in the folder of configs.
  void find_config(const std::string& name, const std::string& place, Row& row) const {
    if (name.empty()) return;
    const fs::path own = file_.path.parent_path() / name, known = options_.config_folder / name;
    const bool is_own = path_exists(own);
    if (!is_own && !path_exists(known))
      throw ConfigError(place + ": there is no config " + own.string() + " and no config " + known.string());
    row.config_path = (is_own ? own : known).string();
    row.config_name = is_own ? own.string() : "configs/" + name;
  }

  // Throws ConfigError if a name is that of no row or task.
  void check_names(const char* part, const std::string& what, const Words& names,
                   std::string PlacedRow::*member) const {
    Words known;
    for (const PlacedRow& placed : rows_)
      if (!is_listed(known, placed.*member)) known.push_back(placed.*member);
    for (const std::string& name : names)
      if (!is_listed(known, name))
        throw ConfigError(where(part) + ": " + describe_unknown_word(what, name, known));
  }

  Measurement read_measurement(const Json& json) const {
    const std::string place = where("measurements"),
                      kind_name = json.is_object() ? json.value("kind", "") : "";
    if (kind_name.empty()) throw ConfigError(place + ": `kind` is missing");
    Measurement measurement{
        .name = kind_name, .kind = &find_measurement_kind(kind_name), .options = Json::object()};
    Json common = json;
    for (const OptionSpec& spec : measurement.kind->options)
      if (json.contains(spec.name)) {
        measurement.options[spec.name] = json[spec.name];
        common.erase(spec.name);
      }
    common.erase("columns");
    common.erase("curves");
    common = fill_json(common, variables_);
    Words rows, tasks;
    int64_t from = 0, to = 0;
    bool first_of_line = false, needs_device = false;
    std::string kind;
    read_keys(common, place + " \"" + common.value("name", kind_name) + "\"", {}, "name", measurement.name,
              "kind", kind, "rows", rows, "tasks", tasks, "values", measurement.sweep, "from", from, "to", to,
              "first_of_line", first_of_line, "needs_device", needs_device);
    if (from > 0 && to < from)
      throw ConfigError(where(measurement.name) + concat_text(": to = ", to, ": expected at least ", from));
    for (int64_t x = from; x > 0 && x <= to; x *= 2) measurement.sweep.push_back(x);
    check_names("measurements", "row", rows, &PlacedRow::base);
    check_names("measurements", "task", tasks, &PlacedRow::task);
    if (needs_device && options_.device == "cpu") return measurement;
    for (const Json& column : json.value("columns", Json::array())) add_columns(column, measurement);
    for (const Json& curve : json.value("curves", Json::array()))
      measurement.curves.push_back(read_curve_keys(fill_json(curve, variables_), place));
    for (const PlacedRow& placed : rows_)
      if (includes(rows, placed.base) && includes(tasks, placed.task) &&
          (placed.row.is_trained || !measurement.kind->needs_run) && (placed.first_of_line || !first_of_line))
        measurement.row_names.push_back(placed.row.name);
    return measurement;
  }

  // Adds a column, or one column for each value of {x} if its name contains {x}.
  void add_columns(const Json& json, Measurement& measurement) const {
    const Json object = json.is_string() ? Json{{"name", json}} : json;
    const auto add = [&](const Lookup& variables) -> Column& {
      return measurement.columns.emplace_back(
          read_column_keys(fill_json(object, variables), where(measurement.name)));
    };
    if (object.value("name", "").find("{x}") == std::string::npos) return void(add(variables_));
    const auto& sweep = measurement.sweep;
    for (size_t i = 0; i < sweep.size(); ++i) {
      Column& column = add(make_lookup({{"x", sweep[i]}}, variables_));
      const bool is_end = i == 0 || i + 1 == sweep.size() || i == sweep.size() / 2;
      if (column.print_at == "ends")
        column.printed = is_end;
      else if (!column.print_at.empty())
        column.printed = column.print_at == std::to_string(sweep[i]);
    }
  }

  const TableFile& file_;
  const ReproductionOptions& options_;
  Json json_;
  std::string config_;
  bool trains_ = true;
  Lookup variables_;
  std::vector<PlacedRow> rows_;
};

}  // namespace

TableFile read_table_file(const std::string& name, const fs::path& config_folder) {
  if (name.ends_with(kToml)) return read_path(name);
  const Words names = list_table_names(config_folder);
  if (!is_listed(names, name)) throw ConfigError(describe_unknown_word("table or figure", name, names));
  return read_path(config_folder / kTables / (name + kToml));
}

Words list_table_names(const fs::path& config_folder) {
  Words names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(config_folder / kTables, error))
    if (entry.path().extension() == kToml) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Table make_table(const TableFile& file, ReproductionOptions& options) try {
  const Json set_variables = take_settings(file, options);
  return TableReader(file, options, set_variables).read();
} catch (const Json::exception& error) {
  throw ConfigError(file.path.string() + ": a value has the wrong type: " + error.what());
}

}  // namespace tapeformer
