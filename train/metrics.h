// metrics.jsonl of a run directory: one JSON object a line, in the order in which the fields are given.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/files.h"

namespace tapeformer {

using MetricValue = std::variant<int64_t, double, std::string>;
using MetricRecord = std::vector<std::pair<std::string, MetricValue>>;

// Appends records, each in the file when write() returns: either whole or not at all. Non-finite numbers are
// null. Throws FileError.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::string& path);
  void write(const MetricRecord& record);

 private:
  File file_;
};

// Before a resume: removes the records of steps after `step` and lines that a crash left half-written,
// atomically. No file is no error. Throws FileError.
void drop_metrics_after(const std::string& path, int64_t step);

// All records; null reads as NaN. A last line without its end is skipped, as a running process may be writing
// it. Throws FileError, and DataError with the line number for anything that is no flat JSON object.
std::vector<MetricRecord> read_metrics(const std::string& path);

// The value of a field as a double, `missing` if there is none or it is text.
double metric_number(const MetricRecord& record, const std::string& field, double missing);

}  // namespace tapeformer
