#include "train/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/base64.h"
#include "data/files/file.h"
#include "train/build.h"
#include "train/report/chart.h"
#include "train/report/html.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPoints = 400;  // maximum number of points of a curve
constexpr size_t kMaxPictures = 4;  // maximum number of pictures of a run; the latest are shown
constexpr uintmax_t kMaxPictureBytes = 1 << 26;
constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";  // first bytes of a PNG file

// A field of metrics.jsonl that a chart plots against the step.
struct PlottedField {
  const char *title, *field, *label;
  Scale scale;
  bool training;  // true: a field of training records; false: a field of evaluation records
  bool by_time;   // whether a second chart plots the field against the training time
};
constexpr PlottedField kFields[] = {
    {"Training loss", "loss_nats", "nats", Scale::log10, true, true},
    {"Evaluation: bits/dim", "bits_per_dim", "bits/dim", Scale::linear, false, true},
    {"Evaluation: loss", "loss_nats", "nats", Scale::linear, false, false},
    {"Evaluation: accuracy", "accuracy", "accuracy", Scale::linear, false, true},
    {"Evaluation: phone error rate", "per", "PER, %", Scale::linear, false, true},
    {"Evaluation: BLEU of greedy decoding", "bleu", "BLEU", Scale::linear, false, true},
    {"Evaluation: chrF2 of greedy decoding", "chrf2", "chrF2", Scale::linear, false, false},
    {"Learning rate", "lr", "learning rate", Scale::linear, true, false},
    {"Gradient norm", "grad_norm", "norm", Scale::log10, true, false},
    {"Speed", "tokens_per_second", "tokens/s", Scale::linear, true, false},
    {"Memory", "memory_bytes", "GiB", Scale::linear, true, false}};

bool is_training(const MetricRecord& record) {
  return get_metric_text(record, "split") == "train";
}
bool is_evaluation(const MetricRecord& record) {
  const std::string split = get_metric_text(record, "split");
  return !split.empty() && split != "train" && split != "epoch";
}

// Reduces a curve to at most kMaxPoints points, to limit the size of the HTML page. Each returned point is
// the mean of a group of successive points.
std::vector<std::pair<double, double>> thin_points(const std::vector<std::pair<double, double>>& points) {
  const size_t group = (points.size() + kMaxPoints - 1) / kMaxPoints;
  if (group <= 1) return points;
  std::vector<std::pair<double, double>> result;
  for (size_t begin = 0; begin < points.size(); begin += group) {
    const size_t end = std::min(begin + group, points.size());
    double x = 0, y = 0;
    for (size_t i = begin; i < end; ++i) {
      x += points[i].first;
      y += points[i].second;
    }
    const auto count = static_cast<double>(end - begin);
    result.emplace_back(x / count, y / count);
  }
  return result;
}

// Returns a curve of a field with at most kMaxPoints points. If `by_time` is true, the x-coordinate is the
// training time in seconds. Otherwise, the x-coordinate is the step. The training time of an evaluation is
// the time of the last training record before the evaluation record.
Series make_series(const ReportedRun& run, const PlottedField& field, bool by_time) {
  Series series{.name = run.name, .points = {}};
  double seconds = 0;
  for (const MetricRecord& record : run.metrics) {
    if (is_training(record)) seconds = get_metric_number(record, "seconds", seconds);
    if (field.training ? !is_training(record) : !is_evaluation(record)) continue;
    double value = get_metric_number(record, field.field, NAN);
    if (std::string(field.field) == "memory_bytes") value /= 1024.0 * 1024 * 1024;
    if (std::isfinite(value))
      series.points.emplace_back(by_time ? seconds : get_metric_number(record, "step", 0), value);
  }
  series.points = thin_points(series.points);
  return series;
}

std::string make_charts(const std::vector<ReportedRun>& runs) {
  std::string svg;
  for (const PlottedField& field : kFields)
    for (const bool by_time : {false, true}) {
      if (by_time && !field.by_time) continue;
      Chart chart{.title = field.title,
                  .x = {by_time ? "seconds of training" : "step"},
                  .y = {field.label, field.scale},
                  .series = {}};
      for (const ReportedRun& run : runs)
        if (Series series = make_series(run, field, by_time); !series.points.empty())
          chart.series.push_back(std::move(series));
      if (!chart.series.empty()) svg += to_svg(chart);
    }
  return svg;
}

// Returns the last value of a field in the records that `select` accepts, or "–" if there is none.
std::string find_last_value(const ReportedRun& run, const char* field, bool (*select)(const MetricRecord&)) {
  for (auto record = run.metrics.rbegin(); record != run.metrics.rend(); ++record)
    if (const double value = get_metric_number(*record, field, NAN); select(*record) && std::isfinite(value))
      return fmt::format("{:.6g}", value);
  return "–";
}

std::string make_final_results(const std::vector<ReportedRun>& runs) {
  const std::vector<std::tuple<const char*, const char*, bool (*)(const MetricRecord&)>> columns = {
      {"step", "step", is_training},
      {"training, s", "seconds", is_training},
      {"training loss, nats", "loss_nats", is_training},
      {"evaluation bits/dim", "bits_per_dim", is_evaluation},
      {"evaluation loss, nats", "loss_nats", is_evaluation},
      {"evaluation accuracy", "accuracy", is_evaluation},
      {"evaluation PER, %", "per", is_evaluation},
      {"evaluation BLEU, greedy", "bleu", is_evaluation},
      {"evaluation chrF2, greedy", "chrf2", is_evaluation},
      {"tokens/s", "tokens_per_second", is_training}};
  HtmlTable table{{"run", "state"}, {}};
  for (const auto& [label, field, select] : columns) table.header.emplace_back(label);
  for (const ReportedRun& run : runs) {
    std::vector<std::string> row = {run.name, run.is_running ? "training" : "ended"};
    for (const auto& [label, field, select] : columns) row.push_back(find_last_value(run, field, select));
    table.rows.push_back(row);
  }
  return to_html(table);
}

// Returns the keys ("table.key") of a config with their values as TOML text.
std::map<std::string, std::string> list_entries(const Config& config) {
  std::map<std::string, std::string> entries;
  std::istringstream lines(to_toml(config));
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("[") && equals == std::string::npos)
      table = line.substr(1, line.find(']') - 1) + ".";
    else if (equals != std::string::npos)
      entries[table + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return entries;
}

// Returns a table of all keys of the configs. Rows with different values come first and are marked.
std::string make_config_table(const std::vector<ReportedRun>& runs) {
  HtmlTable table{{"key"}, {}};
  std::vector<std::map<std::string, std::string>> configs;
  std::set<std::string> keys;
  for (const ReportedRun& run : runs) {
    if (!run.config) continue;
    table.header.push_back(run.name);
    configs.push_back(list_entries(*run.config));
    for (const auto& [key, value] : configs.back()) keys.insert(key);
  }
  if (configs.empty()) return make_html_paragraph("No config can be read.");
  for (const bool marked : {true, false})
    for (const std::string& key : keys) {
      std::vector<std::string> row = {key};
      for (const auto& config : configs) row.push_back(config.contains(key) ? config.at(key) : "–");
      const bool differs =
          std::any_of(row.begin() + 1, row.end(), [&](const std::string& value) { return value != row[1]; });
      if (differs != marked) continue;
      table.rows.push_back(row);
      table.highlighted_rows.push_back(differs);
    }
  return to_html(table);
}

std::string make_samples(const std::vector<ReportedRun>& runs) {
  std::string html;
  for (const ReportedRun& run : runs) {
    std::string pictures;
    for (const fs::path& picture : run.picture_paths)
      pictures += make_html_image("data:image/png;base64," + encode_base64(read_file(picture.string())));
    if (!pictures.empty()) html += make_html_paragraph(run.name) + make_html_figure_rows(pictures);
  }
  return html;
}

bool is_png_file(const fs::path& path) {
  std::string bytes(kPngSignature.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) && bytes == kPngSignature;
}

// Returns the latest PNG files of a folder, oldest first. Adds a message to `damage_messages` for each file
// with the extension .png that is not a PNG file. Leaves out files that are larger than kMaxPictureBytes.
std::vector<fs::path> list_pictures(const fs::path& folder, std::vector<std::string>& damage_messages) {
  std::vector<fs::path> pictures;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".png" || !entry.is_regular_file(error)) continue;
    if (const auto bytes = entry.file_size(error); !error && bytes > kMaxPictureBytes)
      log_warning(entry.path().string(), ": is left out, because it is larger than ", kMaxPictureBytes,
                  " bytes");
    else if (is_png_file(entry.path()))
      pictures.push_back(entry.path());
    else
      damage_messages.push_back(entry.path().string() + ": not a PNG file");
  }
  std::sort(pictures.begin(), pictures.end(), [](const fs::path& a, const fs::path& b) {
    std::error_code ignored;
    return fs::last_write_time(a, ignored) < fs::last_write_time(b, ignored);
  });
  if (pictures.size() > kMaxPictures)
    pictures.erase(pictures.begin(), pictures.end() - static_cast<std::ptrdiff_t>(kMaxPictures));
  return pictures;
}

bool is_locked(const std::string& path) {
  try {
    const FolderLock lock(path);
    return false;
  } catch (const FileError& error) {
    return error.error_number() == EWOULDBLOCK;
  }
}

}  // namespace

ReportedRun read_reported_run(const std::string& path) {
  ReportedRun run;
  run.name = path;
  const fs::path folder = path, metrics = folder / kMetricsFileName, config = folder / "config.toml";
  if (!path_exists(metrics) && !path_exists(config))
    throw CheckpointError(path + ": not a run directory; it has neither " + kMetricsFileName +
                          " nor config.toml");
  try {
    run.config = load_config(config.string(), {}, {.unused_key_policy = UnusedKeyPolicy::ignore_in_file});
  } catch (const ConfigError& error) {
    run.damage_messages.emplace_back(error.what());
  }
  try {
    MetricsFileContents file = read_valid_metrics(metrics.string());
    run.metrics = std::move(file.records);
    run.damage_messages.insert(run.damage_messages.end(), file.damage_messages.begin(),
                               file.damage_messages.end());
  } catch (const FileError& error) {
    run.damage_messages.emplace_back(error.what());
  }
  run.picture_paths = list_pictures(folder / "samples", run.damage_messages);
  run.is_running = is_locked(path);
  return run;
}

std::string make_report_page(const std::vector<ReportedRun>& runs, int refresh_seconds) {
  std::string body = make_html_heading("Final figures") + make_final_results(runs);
  for (const ReportedRun& run : runs)
    for (const std::string& problem : run.damage_messages) body += make_html_paragraph("Damaged: " + problem);
  body += make_html_heading("Curves") + make_html_figure_rows(make_charts(runs));
  const std::string samples = make_samples(runs);
  if (!samples.empty()) body += make_html_heading("Samples") + samples;
  body += make_html_heading("Configs");
  if (runs.size() > 1) body += make_html_paragraph("Keys with different values come first and are marked.");
  body += make_config_table(runs);
  return make_html_page(runs.size() == 1 ? "Run " + runs.front().name : "Comparison of runs", body,
                        refresh_seconds);
}

}  // namespace tapeformer
