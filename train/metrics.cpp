#include "train/metrics.h"

#include <fcntl.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

// Calls f(line, number) for each line. `number` is the line number, counted from 1. Skips a last line without
// a line end.
template <class F>
void for_each_line(const std::string& text, F&& f) {
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    f(std::string_view(text).substr(begin, end - begin), ++number);
}

MetricValue parse_metric_value(const Json& json, const std::string& where) {
  if (json.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  throw DataError(where + ": expected numbers and strings, got " + json.type_name());
}

MetricRecord record_of(std::string_view line, const std::string& where) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) throw DataError(where + ": expected a JSON object");
  MetricRecord record;
  for (const auto& [name, value] : json.items()) record.emplace_back(name, parse_metric_value(value, where));
  return record;
}

bool is_evaluation(const Json& record) {
  const auto split = record.find("split");
  return split != record.end() && split->is_string() && *split != "train" && *split != "epoch";
}

}  // namespace

MetricsWriter::MetricsWriter(const Folder& run_dir)
    : file_(run_dir.open_file(kMetricsFileName, O_WRONLY | O_CREAT | O_APPEND)) {}

void MetricsWriter::write(const MetricRecord& record) {
  Json json = Json::object();
  for (const auto& [name, value] : record)
    std::visit([&, &key = name](const auto& v) { json[key] = v; }, value);
  waiting_lines_ += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  ++waiting_record_count_;
  flush();
}

void MetricsWriter::flush() {
  if (waiting_lines_.empty()) return;
  try {
    const size_t before = file_.size();
    try {
      file_.write(waiting_lines_.data(), waiting_lines_.size());
    } catch (const FileError&) {
      file_.truncate(before);  // removes an incomplete line
      throw;
    }
    waiting_lines_.clear();
    waiting_record_count_ = 0;
    last_error_.clear();
  } catch (const FileError& error) {
    last_error_ = error.what();
  }
}

void drop_metrics_after(const Folder& run_dir, int64_t step, bool evaluated) {
  if (run_dir.get_entry_kind(kMetricsFileName) == Folder::Kind::none) return;
  const File file = run_dir.open_file(kMetricsFileName, O_RDONLY);
  std::string text(file.size(), '\0');
  file.read_at(text.data(), text.size(), 0);
  const auto is_dropped = [&](const Json& record) {
    const auto number = record.find("step");
    if (number == record.end() || !number->is_number()) return false;
    const auto at = number->get<double>(), last = static_cast<double>(step);
    return at > last || (at == last && !evaluated && is_evaluation(record));
  };
  std::string kept;
  for_each_line(text, [&](std::string_view line, int64_t) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && !is_dropped(json)) kept.append(line).append("\n");
  });
  if (kept != text) run_dir.replace_file(kMetricsFileName, kept);
}

MetricsFileContents read_valid_metrics(const std::string& path) {
  MetricsFileContents file;
  for_each_line(read_file(path), [&](std::string_view line, int64_t number) {
    try {
      file.records.push_back(record_of(line, path + ":" + std::to_string(number)));
    } catch (const DataError& error) {
      file.damage_messages.emplace_back(error.what());
    }
  });
  return file;
}

std::vector<MetricRecord> read_metrics(const std::string& path) {
  MetricsFileContents file = read_valid_metrics(path);
  if (!file.damage_messages.empty()) throw DataError(file.damage_messages.front());
  return std::move(file.records);
}

double get_metric_number(const MetricRecord& record, const std::string& field, double fallback) {
  for (const auto& [name, value] : record) {
    if (name != field) continue;
    if (auto integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
    if (auto number = std::get_if<double>(&value)) return *number;
  }
  return fallback;
}

std::string get_metric_text(const MetricRecord& record, const std::string& field) {
  for (const auto& [name, value] : record)
    if (const auto* text = std::get_if<std::string>(&value); text && name == field) return *text;
  return "";
}

}  // namespace tapeformer
