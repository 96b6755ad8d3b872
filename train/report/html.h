// Self-contained HTML pages. All functions escape their arguments, except `body` and `content`, which are
// HTML.
#pragma once

#include <string>
#include <vector>

namespace tapeformer {

struct HtmlTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> highlighted_rows = {};  // whether each row is highlighted; empty: no row is highlighted
};

// Returns the text with the characters &, <, > and " escaped as entities. Also escapes the characters that
// escape_text() escapes (core/system/printable.h).
std::string escape_html(const std::string& text);
// The next three functions return an HTML heading, paragraph or table.
std::string make_html_heading(const std::string& text);
std::string make_html_paragraph(const std::string& text);
std::string to_html(const HtmlTable& table);
// Returns an image element. `source` is a path relative to the page, or a data: URL.
std::string make_html_image(const std::string& source);
// Returns an element that arranges the pictures and charts in `content` in rows that fit the width of the
// page.
std::string make_html_figure_rows(const std::string& content);
// Returns a page with a title as its heading. If `refresh_seconds` is positive, browsers reload the page
// after this time.
std::string make_html_page(const std::string& title, const std::string& body, int refresh_seconds = 0);

}  // namespace tapeformer
