// Reports, which are ordered lists of named values. Commands, benchmarks and reproductions print their
// results as a report, either as text for people or as a JSON object for programs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tapeformer {

class Report {
 public:
  // A null value, a scalar, a list, or a table with one Report per row.
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                             std::vector<std::string>, std::vector<Report>>;

  // Appends a field and returns the report.
  Report& add(std::string name, Value value);
  const std::vector<std::pair<std::string, Value>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, Value>> fields_;
};

// Returns the report as a JSON object on a single line. Numbers that are not finite become null.
std::string to_json(const Report& report);

// Returns a line "name  value" for each scalar and list, followed by the tables. Integers whose names end in
// "bytes" are shown in B, KiB, MiB, GiB or TiB.
std::string to_text(const Report& report);

}  // namespace tapeformer
