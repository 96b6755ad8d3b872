#include "train/reproduce/render.h"

#include <fmt/format.h>

#include "core/system/files.h"
#include "train/report/chart.h"
#include "train/report/html.h"
#include "train/reproduce/table.h"

namespace tapeformer {
namespace {

std::string format_markdown_line(const Json& cells) {
  std::string line = "|";
  for (const Json& cell : cells) {
    line += " ";
    for (const char c : cell.get<std::string>()) line += c == '|' ? "\\|" : std::string(1, c);
    line += " |";
  }
  return line + "\n";
}

// Returns the text as a code span. The delimiter has more backticks than any sequence of backticks in the
// text (CommonMark, section 6.1).
std::string format_markdown_code(const std::string& text) {
  if (text.find('`') == std::string::npos) return "`" + text + "`";
  std::string delimiter = "``";
  while (text.find(delimiter) != std::string::npos) delimiter += '`';
  return delimiter + " " + text + " " + delimiter;
}

// Returns the text as a CSV cell. If the text contains a comma, a quote or a line end, encloses the text in
// quotes and doubles the quotes in the text.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(const Json& number) {
  return number.is_number() ? fmt::format("{:.9g}", number.get<double>()) : "";
}

Chart make_chart(const Json& figure) {
  const auto axis = [](const Json& a) {
    return Axis{a["label"].get<std::string>(), parse_scale(a["scale"].get<std::string>())};
  };
  Chart chart{.title = figure["title"].get<std::string>(),
              .x = axis(figure["x"]),
              .y = axis(figure["y"]),
              .series = {}};
  if (figure.contains("area_label")) {
    chart.circle_area_unit = figure["area_label"].get<std::string>();
    chart.width = 2 * kColumnWidth;
  }
  for (const Json& series : figure["series"])
    chart.series.push_back({.name = series["name"].get<std::string>(),
                            .points = series["points"].get<std::vector<std::pair<double, double>>>(),
                            .error_bars = series["errors"].get<std::vector<double>>(),
                            .circle_area = series.value("area", 0.0)});
  return chart;
}

// Returns the failures of a table as "ROW, COLUMN: error".
std::vector<std::string> failures_of(const Json& table) {
  std::vector<std::string> failures;
  for (const Json& row : table["rows"])
    for (const auto& [column, cell] : row["cells"].items())
      if (cell.contains("error"))
        failures.push_back(fmt::format("{}, {}: {}", row["name"].get<std::string>(), column,
                                       cell["error"].get<std::string>()));
  return failures;
}

std::string origin_text(const Json& table) {
  const auto threads = table["threads"].get<int64_t>();
  return fmt::format("Scale {}, device {}, {}, {} {}, commit {}, {}.", table["scale"].get<std::string>(),
                     table["device"].get<std::string>(), table["machine"].get<std::string>(), threads,
                     threads == 1 ? "thread" : "threads", table["commit"].get<std::string>(),
                     table["date"].get<std::string>());
}

// Returns an HTML table with one row per cell: the values by seed, and the origin of these values.
std::string origin_table(const Json& table) {
  HtmlTable html{{"row", "column", "values by seed", "commit", "machine", "date", "command"}, {}};
  for (const Json& row : table["rows"])
    for (const auto& [column, cell] : row["cells"].items()) {
      std::string values;
      for (const Json& measured : cell["values"])
        values += fmt::format("{}{}: {:.6g}", values.empty() ? "" : "; ", measured["seed"].get<int64_t>(),
                              measured["value"].get<double>());
      if (values.empty()) values = cell.value("text", cell["status"].get<std::string>());
      html.rows.push_back({row["name"].get<std::string>(), column, values, cell.value("commit", ""),
                           cell.value("machine", ""), cell.value("date", ""),
                           cell["command"].get<std::string>()});
    }
  return to_html(html);
}

}  // namespace

std::string to_markdown(const Json& table) {
  std::string text = "# " + table["title"].get<std::string>() + "\n\n" + table["source"].get<std::string>() +
                     "\n\n" + format_markdown_line(table["printed"]["header"]) + "|";
  for (size_t i = 0; i < table["printed"]["header"].size(); ++i) text += "---|";
  text += "\n";
  for (const Json& row : table["printed"]["rows"]) text += format_markdown_line(row);
  text += "\n" + format_markdown_code(table["command"].get<std::string>()) + ". " + origin_text(table) + "\n";
  for (const Json& note : table["notes"]) text += "\n- " + note.get<std::string>();
  if (!table["notes"].empty()) text += "\n";
  for (const std::string& failure : failures_of(table)) text += "\nFailed: " + failure + "\n";
  for (const Json& figure : table["figures"])
    text += fmt::format("\n![{}]({}.svg)\n", figure["title"].get<std::string>(),
                        figure["name"].get<std::string>());
  for (const Json& picture : table["pictures"])
    text += fmt::format("\n![{0}]({0})\n", picture.get<std::string>());
  return text;
}

std::string to_csv(const Json& table) {
  std::string text = "row,column,seed,value,paper,commit,machine,date\n";
  for (const Json& row : table["rows"])
    for (const auto& [column, cell] : row["cells"].items()) {
      Json values = cell["values"];
      const std::string words = cell.value("text", "");
      if (values.empty()) values.push_back({{"seed", nullptr}, {"value", nullptr}});
      for (const Json& measured : values)
        text += fmt::format("{},{},{},{},{},{},{},{}\n", csv_cell(row["name"].get<std::string>()),
                            csv_cell(column), csv_number(measured["seed"]),
                            words.empty() ? csv_number(measured["value"]) : csv_cell(words),
                            csv_number(cell["paper"]), cell.value("commit", ""),
                            csv_cell(cell.value("machine", "")), cell.value("date", ""));
    }
  return text;
}

std::string to_html(const Json& table) {
  HtmlTable printed{table["printed"]["header"].get<std::vector<std::string>>(),
                    table["printed"]["rows"].get<std::vector<std::vector<std::string>>>()};
  std::string body = make_html_paragraph(table["source"].get<std::string>()) + to_html(printed) +
                     make_html_paragraph(table["command"].get<std::string>() + ". " + origin_text(table));
  for (const Json& note : table["notes"]) body += make_html_paragraph(note.get<std::string>());
  for (const std::string& failure : failures_of(table)) body += make_html_paragraph("Failed: " + failure);
  std::string figures;
  for (const Json& figure : table["figures"]) figures += to_svg(make_chart(figure));
  for (const Json& picture : table["pictures"]) figures += make_html_image(picture.get<std::string>());
  body += make_html_figure_rows(figures) + make_html_heading("Every value") + origin_table(table);
  return make_html_page(table["title"].get<std::string>(), body);
}

void write_table_files(const Json& table, const std::filesystem::path& folder) {
  replace_file((folder / "table.md").string(), to_markdown(table));
  replace_file((folder / "table.csv").string(), to_csv(table));
  replace_file((folder / "table.html").string(), to_html(table));
  for (const Json& figure : table["figures"])
    write_chart(folder / figure["name"].get<std::string>(), make_chart(figure));
}

}  // namespace tapeformer
