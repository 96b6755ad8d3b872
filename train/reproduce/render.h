// A writer of the files of a table: table.md, table.csv, table.html, and an SVG file per figure. All contents
// are read from table.json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace tapeformer {

// Returns the table as Markdown. In all functions of this file, `table` is the object that
// train/reproduce/table_json.h describes.
std::string to_markdown(const nlohmann::ordered_json& table);
// Returns the table as CSV with one line per row, column and seed.
std::string to_csv(const nlohmann::ordered_json& table);
// Returns an HTML page with the table, its figures and the origin of every cell. The page does not contain
// the pictures of samples, but refers to their files by relative paths.
std::string to_html(const nlohmann::ordered_json& table);

// Writes all files of the table to `folder`. Throws FileError.
void write_table_files(const nlohmann::ordered_json& table, const std::filesystem::path& folder);

}  // namespace tapeformer
