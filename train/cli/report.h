// The result of a command: named values in order, printed as text for people or as one JSON object for
// programs. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tapeformer {

class Report {
 public:
  // Nothing (null), scalars, lists, and a table: one Report a row.
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                             std::vector<std::string>, std::vector<Report>>;

  Report& add(std::string name, Value value);
  const std::vector<std::pair<std::string, Value>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, Value>> fields_;
};

// One line without its end; numbers that are not finite become null.
std::string to_json(const Report& report);

// A line "name  value" for every scalar and list, then the tables. Names ending in "bytes" are shown in KiB,
// MiB or GiB.
std::string to_text(const Report& report);

}  // namespace tapeformer
