// Self-contained HTML pages. All functions escape their texts, except arguments named `body` and `content`,
// which are HTML.
#pragma once

#include <string>
#include <vector>

namespace tapeformer {

struct HtmlTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> marked = {};  // marked rows are highlighted; empty: none
};

// Returns the text with the characters &, <, > and " escaped as entities.
std::string html_escaped(const std::string& text);
// Return HTML elements with a heading, a paragraph or a table.
std::string html_heading(const std::string& text);
std::string html_paragraph(const std::string& text);
std::string to_html(const HtmlTable& table);
// Returns an image element. `source` is a path relative to the page, or a data: URL.
std::string html_picture(const std::string& source);
// Returns pictures and charts in rows that fit the width of the page.
std::string html_figures(const std::string& content);
// Returns a page with a title as its heading. If `refresh_seconds` is positive, browsers reload the page.
std::string html_page(const std::string& title, const std::string& body, int refresh_seconds = 0);

}  // namespace tapeformer
