#include "train/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/system/printable.h"
#include "core/system/utf8.h"

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

Json convert_to_json(const Report& report);

Json convert_to_json(const Report::Value& value) {
  return std::visit(
      [](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, std::vector<Report>>) {
          Json rows = Json::array();
          for (const Report& row : v) rows.push_back(convert_to_json(row));
          return rows;
        } else {
          return v;
        }
      },
      value);
}

Json convert_to_json(const Report& report) {
  Json object = Json::object();
  for (const auto& [name, value] : report.fields()) object[name] = convert_to_json(value);
  return object;
}

// Significant digits of numbers: kTableDigits in tables, and kDigits elsewhere.
constexpr int kDigits = 6, kTableDigits = 4;

std::string format_number(double number, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, number);
  return text;
}

std::string format_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; std::abs(size) >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", size, kUnits[unit]);
  return text;
}

// Returns the items of a list separated by spaces, or by semicolons if an item contains a space. Returns "-"
// for an empty list.
template <class T>
std::string list_text(const std::vector<T>& list) {
  std::string text, separator = " ";
  if constexpr (std::is_same_v<T, std::string>)
    for (const T& item : list)
      if (item.find(' ') != std::string::npos) separator = "; ";
  for (const T& item : list) {
    if (!text.empty()) text += separator;
    if constexpr (std::is_same_v<T, std::string>)
      text += escape_line(item);
    else
      text += std::to_string(item);
  }
  return text.empty() ? "-" : text;
}

std::string format_value(const std::string& name, const Report::Value& value, int digits) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>)
          return v ? "yes" : "no";
        else if constexpr (std::is_same_v<T, int64_t>)
          return name.ends_with("bytes") ? format_bytes(v) : std::to_string(v);
        else if constexpr (std::is_same_v<T, double>)
          return format_number(v, digits);
        else if constexpr (std::is_same_v<T, std::string>)
          return v.empty() ? "-" : escape_line(v);
        else if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                           std::is_same_v<T, std::vector<std::string>>)
          return list_text(v);
        else
          return "-";
      },
      value);
}

// Returns the title of a field. Underscores become spaces. The suffix "_bytes" is removed, because the values
// are shown with their units.
std::string make_title(std::string name) {
  if (name.ends_with("_bytes")) name.resize(name.size() - std::string_view("_bytes").size());
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

bool is_number(const Report::Value& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

size_t count_characters(const std::string& text) {
  return static_cast<size_t>(count_utf8_characters(text));
}

std::string pad(const std::string& text, size_t width, bool align_right) {
  const std::string blanks(width - std::min(width, count_characters(text)), ' ');
  return align_right ? blanks + text : text + blanks;
}

// Returns the rows as a text table. Each column has the width of its widest cell, and numbers are aligned to
// the right.
std::string format_table_text(const std::vector<Report>& rows) {
  std::vector<std::vector<std::string>> lines(1);
  for (const auto& [name, value] : rows.front().fields()) lines[0].push_back(make_title(name));
  for (const Report& row : rows) {
    lines.emplace_back();
    for (const auto& [name, value] : row.fields())
      lines.back().push_back(format_value(name, value, kTableDigits));
  }
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (size_t c = 0; c < std::min(line.size(), widths.size()); ++c)
      widths[c] = std::max(widths[c], count_characters(line[c]));
  std::string text;
  for (const auto& line : lines) {
    std::string printed;
    for (size_t c = 0; c < std::min(line.size(), widths.size()); ++c) {
      if (c > 0) printed += "  ";
      printed += pad(line[c], widths[c], is_number(rows.front().fields()[c].second));
    }
    text += printed.substr(0, printed.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

Report& Report::add(std::string name, Value value) {
  fields_.emplace_back(std::move(name), std::move(value));
  return *this;
}

std::string to_json(const Report& report) {
  // Paths and messages of the system may be invalid UTF-8, which JSON does not allow.
  return convert_to_json(report).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const Report& report) {
  size_t width = 0;
  for (const auto& [name, value] : report.fields())
    if (!std::holds_alternative<std::vector<Report>>(value)) width = std::max(width, name.size());
  std::string text, tables;
  for (const auto& [name, value] : report.fields()) {
    const auto* rows = std::get_if<std::vector<Report>>(&value);
    if (!rows)
      text += pad(make_title(name), width, false) + "  " + format_value(name, value, kDigits) + "\n";
    else if (!rows->empty())
      tables += (text.empty() && tables.empty() ? "" : "\n") + format_table_text(*rows);
  }
  return text + tables;
}

}  // namespace tapeformer
