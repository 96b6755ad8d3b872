// metrics.jsonl of a run directory: one JSON object a line, in the order in which the fields are given.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/folder.h"

namespace tapeformer {

using MetricValue = std::variant<int64_t, double, std::string>;
inline constexpr char kMetricsFile[] = "metrics.jsonl";

using MetricRecord = std::vector<std::pair<std::string, MetricValue>>;

// Appends records. Records that cannot be written, as on a full disk, wait in memory for the next call; a
// record is in the file whole or not at all. Non-finite numbers are null.
class MetricsWriter {
 public:
  // Opens or creates the file in a run directory. Throws FileError.
  explicit MetricsWriter(const Folder& run_dir);

  // Appends the records that wait and then this one.
  void write(const MetricRecord& record);
  // Tries again to write the records that wait.
  void flush();
  // Records that wait in memory, and why they do; 0 and "" after a successful call.
  int64_t waiting() const { return waiting_; }
  const std::string& problem() const { return problem_; }

 private:
  File file_;
  std::string lines_;  // of the records that wait
  int64_t waiting_ = 0;
  std::string problem_;
};

// Before a resume from a checkpoint of `step`: removes the records of later steps and lines that a crash left
// half-written, atomically. If the checkpoint does not know an evaluation of its step, the records of this
// evaluation are removed too, because the resumed run evaluates again. No file is no error. Throws FileError.
void drop_metrics_after(const Folder& run_dir, int64_t step, bool evaluated);

// All records; null reads as NaN. A last line without its end is skipped, as a running process may be writing
// it. Throws FileError, and DataError with the line number for anything that is no flat JSON object.
std::vector<MetricRecord> read_metrics(const std::string& path);

// The value of a field as a double, `missing` if there is none or it is text.
double metric_number(const MetricRecord& record, const std::string& field, double missing);

}  // namespace tapeformer
