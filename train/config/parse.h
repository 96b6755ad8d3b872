// A parser of config files and --set options. The parser returns flat lists of settings with their positions.
// Only train/config/parse.cpp uses the TOML library. Internal to the config code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/value.h"

namespace tapeformer {

// The position of a setting. In a file, `line` and `column` count from 1. For the n-th --set option, `file`
// has the form "--set table.key", `line` is 0, and `column` is n.
struct ConfigPosition {
  std::string file;
  int64_t line = 0;
  int64_t column = 0;

  std::string to_string() const {
    return line == 0 ? file : file + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
};

inline bool is_set_option_position(const ConfigPosition& position) {
  return position.line == 0 && position.file.starts_with("--set ");
}

struct ConfigProblem {
  ConfigPosition position;
  std::string message;
};

struct Setting {
  std::string table_name;  // name of the table; "" for a key outside of all tables
  std::string key;
  RawValue value;
  ConfigPosition key_position;
  ConfigPosition value_position;

  std::string name() const { return table_name.empty() ? key : table_name + "." + key; }
};

// Settings of one file or of all --set options, sorted by position.
struct ConfigLayer {
  struct Table {
    std::string name;
    ConfigPosition position;
  };
  std::vector<Table> tables;
  std::vector<Setting> settings;
};

// Reads and parses a file. Appends problems to `problems`: unreadable or binary files and syntax errors.
// `reached_from` is the position of the key `extends` that names the file, or null. An unreadable file is
// reported at this position.
ConfigLayer parse_config_file(const std::string& path, const ConfigPosition* reached_from,
                              std::vector<ConfigProblem>& problems);

// Returns the contents of a TOML file as JSON text. Throws ConfigError if the file is unreadable or binary,
// or for a syntax error.
std::string read_toml_as_json(const std::string& path);

// Parses options of the form "table.key=value". A value that is not valid TOML becomes a string. If such a
// value starts like a list, an inline table or a quoted string, the function appends a problem instead.
ConfigLayer parse_set_options(const std::vector<std::string>& config_settings,
                              std::vector<ConfigProblem>& problems);

}  // namespace tapeformer
