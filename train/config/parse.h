// Turns TOML text into flat lists of settings with their positions. The only file that knows the TOML library
// is train/config/parse.cpp; the rest of the config code sees these neutral values. Internal to the config
// code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/value.h"

namespace tapeformer {

// Where a setting stands: a file with line and column, or "--set table.key" with line 0 and the option's
// number.
struct ConfigPosition {
  std::string file;
  int64_t line = 0;
  int64_t column = 0;

  std::string text() const {
    return line == 0 ? file : file + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
};

inline bool is_set_option(const ConfigPosition& position) {
  return position.line == 0 && position.file.starts_with("--set ");
}

struct ConfigProblem {
  ConfigPosition where;
  std::string message;
};

struct Setting {
  std::string table;  // "": the key stands outside of all tables
  std::string key;
  RawValue value;
  ConfigPosition key_at;
  ConfigPosition value_at;

  std::string name() const { return table.empty() ? key : table + "." + key; }
};

// The settings of one file, or of all --set options, in the order of their positions.
struct ConfigLayer {
  struct Table {
    std::string name;
    ConfigPosition where;
  };
  std::vector<Table> tables;
  std::vector<Setting> settings;
};

// Reads and parses a file. Problems (unreadable, not text, syntax, duplicate keys) are appended to
// `problems`; that of an unreadable file stands at `reached_from`, the `extends` that names it, if there is
// one.
ConfigLayer parse_config_file(const std::string& path, const ConfigPosition* reached_from,
                              std::vector<ConfigProblem>& problems);

// Parses "table.key=value" options; a value that is no TOML and does not look like a list or a quoted string
// is taken as text.
ConfigLayer parse_set_options(const std::vector<std::string>& sets, std::vector<ConfigProblem>& problems);

}  // namespace tapeformer
