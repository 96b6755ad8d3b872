#include "train/report/html.h"

#include "core/system/printable.h"

namespace tapeformer {
namespace {

constexpr char kStyle[] =
    "body{font:15px/1.45 sans-serif;max-width:1200px;margin:24px auto;padding:0 16px;color:#222}"
    "h1{font-size:24px}h2{font-size:18px;margin-top:28px}"
    "table{border-collapse:collapse;margin:12px 0;display:block;overflow-x:auto}"
    "th,td{border:1px solid #ccc;padding:4px 9px;text-align:left;vertical-align:top}"
    "th{background:#f2f2f2}tr.marked td{background:#fff3cd}"
    ".figures{display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start}"
    ".figures svg{width:480px;height:auto;border:1px solid #ddd}"
    ".figures img{max-width:480px;image-rendering:pixelated;border:1px solid #ddd}";

std::string wrap_in_tag(const char* tag, const std::string& text) {
  return "<" + std::string(tag) + ">" + escape_html(text) + "</" + tag + ">";
}

std::string make_row(const char* tag, const std::vector<std::string>& cells, bool marked) {
  std::string html = marked ? "<tr class=\"marked\">" : "<tr>";
  for (const std::string& cell : cells) html += wrap_in_tag(tag, cell);
  return html + "</tr>\n";
}

}  // namespace

std::string escape_html(const std::string& text) {
  std::string result;
  for (const char c : escape_text(text)) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string make_html_heading(const std::string& text) {
  return wrap_in_tag("h2", text) + "\n";
}

std::string make_html_paragraph(const std::string& text) {
  return wrap_in_tag("p", text) + "\n";
}

std::string to_html(const HtmlTable& table) {
  std::string html = "<table>\n" + make_row("th", table.header, false);
  for (size_t i = 0; i < table.rows.size(); ++i)
    html += make_row("td", table.rows[i], !table.highlighted_rows.empty() && table.highlighted_rows[i]);
  return html + "</table>\n";
}

std::string make_html_image(const std::string& source) {
  return "<img src=\"" + escape_html(source) + "\" alt=\"\">\n";
}

std::string make_html_figure_rows(const std::string& content) {
  return "<div class=\"figures\">\n" + content + "</div>\n";
}

std::string make_html_page(const std::string& title, const std::string& body, int refresh_seconds) {
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  if (refresh_seconds > 0)
    html += "<meta http-equiv=\"refresh\" content=\"" + std::to_string(refresh_seconds) + "\">\n";
  return html + wrap_in_tag("title", title) + "\n<style>" + kStyle + "</style>\n</head>\n<body>\n" +
         wrap_in_tag("h1", title) + "\n" + body + "</body>\n</html>\n";
}

}  // namespace tapeformer
