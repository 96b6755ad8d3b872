// The file metrics.jsonl of a run directory. Each line is a JSON object with the fields of one record, in
// order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/system/folder.h"

namespace tapeformer {

using MetricValue = std::variant<int64_t, double, std::string>;
inline constexpr char kMetricsFileName[] = "metrics.jsonl";

using MetricRecord = std::vector<std::pair<std::string, MetricValue>>;

// A writer that appends records to metrics.jsonl. Records that cannot be written, for example on a full disk,
// wait in memory until the next call of write() or flush(). Each record is written completely or not at all.
// Non-finite numbers become null.
class MetricsWriter {
 public:
  // Opens or creates the file in a run directory. Throws FileError.
  explicit MetricsWriter(const Folder& run_dir);

  // Appends the waiting records, then this record.
  void write(const MetricRecord& record);
  // Writes the waiting records. If the file cannot be written, keeps the records in memory.
  void flush();
  // Returns the number of records that have not been written to the file yet.
  int64_t pending_record_count() const { return waiting_record_count_; }
  // Returns the message of the last write error. If no records wait in memory, returns "".
  const std::string& last_error() const { return last_error_; }

 private:
  File file_;
  std::string waiting_lines_;  // records that are not yet in the file
  int64_t waiting_record_count_ = 0;
  std::string last_error_;
};

// Prepares metrics.jsonl for a resume from the checkpoint of `step`. Removes the records of steps after
// `step`, lines that are not JSON objects, and a last line without a newline. If `evaluated` is false, also
// removes the evaluation records of `step`, because the resumed run repeats this evaluation. Replaces the
// file atomically. If the file does not exist, does nothing. Throws FileError if the file cannot be read or
// replaced.
void drop_metrics_after(const Folder& run_dir, int64_t step, bool evaluated);

// Returns all records of a metrics file. Converts null to NaN. Skips a last line without a newline, because a
// training process may still be writing this line. Throws FileError if the file cannot be read. Throws
// DataError if a line is not a JSON object whose values are numbers, strings or null. The error message
// contains the line number.
std::vector<MetricRecord> read_metrics(const std::string& path);

struct MetricsFileContents {
  std::vector<MetricRecord> records;
  std::vector<std::string> damage_messages;  // "PATH:LINE: problem" for each invalid line
};
// Reads the records as read_metrics() does, but does not throw if a line is damaged. Instead, returns the
// valid records and a message for each damaged line.
MetricsFileContents read_valid_metrics(const std::string& path);

// Returns the value of a field, or `fallback` if the field is missing or is a string.
double get_metric_number(const MetricRecord& record, const std::string& field, double fallback);
// Returns the text of a field, or "" if the field is missing or is a number.
std::string get_metric_text(const MetricRecord& record, const std::string& field);

}  // namespace tapeformer
