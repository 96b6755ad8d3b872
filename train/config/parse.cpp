#include "train/config/parse.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <tuple>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "data/files/text_encoding.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxLineBytes = 4096;

std::string shorten(const std::string& text) {
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

ConfigPosition make_position(const std::string& file, const toml::source_position& at) {
  return {file, static_cast<int64_t>(at.line), static_cast<int64_t>(at.column)};
}

RawValue make_raw_value(const toml::node& node) {
  if (auto value = node.as_boolean()) return {value->get(), value->get() ? "true" : "false"};
  if (auto value = node.as_integer()) return {value->get(), "integer " + std::to_string(value->get())};
  if (auto value = node.as_floating_point()) {
    std::ostringstream text;
    text << "float " << value->get();
    return {value->get(), text.str()};
  }
  if (auto value = node.as_string())
    return {value->get(), "string \"" + shorten(escape_line(value->get())) + "\""};
  if (auto array = node.as_array()) {
    std::vector<RawValue> elements;
    for (const auto& element : *array) elements.push_back(make_raw_value(element));
    const std::string found = "a list of " + std::to_string(elements.size());
    return {std::move(elements), found};
  }
  return {std::monostate{}, node.is_table() ? "a table" : "a date or time"};
}

std::string describe_syntax_error(const toml::parse_error& error) {
  std::string text = escape_line(error.description());
  const std::string prefix = "Error while parsing ";
  if (text.starts_with(prefix)) text = text.substr(prefix.size());
  return "syntax error: " + text;
}

ConfigLayer flatten(const toml::table& root, const std::string& file) {
  ConfigLayer layer;
  const auto position = [&](const toml::source_region& region) { return make_position(file, region.begin); };
  // A key OPTION of a table [attention.KIND] becomes a setting of the table [attention] with the key
  // "KIND.OPTION".
  const auto add = [&](auto& self, const std::string& table, const std::string& prefix, const toml::key& key,
                       const toml::node& node) -> void {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* const inner = node.as_table(); inner && table == "attention" && prefix.empty()) {
      for (const auto& [inner_key, inner_node] : *inner) self(self, table, name + ".", inner_key, inner_node);
      return;
    }
    layer.settings.push_back(
        {table, name, make_raw_value(node), position(key.source()), position(node.source())});
  };
  for (const auto& [key, node] : root) {
    const toml::table* table = node.as_table();
    if (!table) {
      add(add, "", "", key, node);
      continue;
    }
    const std::string name = std::string(key.str());
    layer.tables.push_back({name, position(key.source())});
    for (const auto& [inner_key, inner] : *table) add(add, name, "", inner_key, inner);
  }
  const auto earlier = [](const Setting& a, const Setting& b) {
    return std::tie(a.key_position.line, a.key_position.column) <
           std::tie(b.key_position.line, b.key_position.column);
  };
  std::stable_sort(layer.settings.begin(), layer.settings.end(), earlier);
  return layer;
}

// Returns the text of a file. If the file is unreadable, binary or too large, returns std::nullopt and sets
// `problem`.
std::optional<std::string> read_text(const std::string& path, std::string& problem) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    problem = "is a folder, expected a config file";
    return std::nullopt;
  }
  // Opening a pipe without a writer would block. A pipe under /dev/ comes from the shell's <(command) and has
  // a writer.
  if (std::filesystem::is_fifo(path, ignored) && !path.starts_with("/dev/")) {
    problem = "is a pipe, expected a config file";
    return std::nullopt;
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    problem = std::string("cannot be read: ") + std::strerror(errno ? errno : EIO);
    return std::nullopt;
  }
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) problem = "is larger than 1 MiB, expected a TOML config file";
  if (const TextEncoding encoding = detect_text_encoding(text); !encoding.is_utf8())
    problem = describe_encoding_problem(encoding);
  else if (text.find('\0') != std::string::npos)
    problem = "is not a text file, expected a TOML config file";
  for (size_t begin = 0; problem.empty() && begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > kMaxLineBytes)
      problem = "has a line longer than 4096 bytes, expected a TOML config file";
    begin = end + 1;
  }
  if (!problem.empty()) return std::nullopt;
  return text;
}

// Parses the value of a --set option as a TOML value. If `text` is not valid TOML, returns `text` as a
// string. However, if invalid text starts with a bracket, a brace or a quote, the text is probably a
// malformed list, table or string. For such a text, returns std::nullopt and sets `problem`.
std::optional<RawValue> find_set_option_value(const std::string& text, std::string& problem) {
  try {
    const toml::table parsed = toml::parse(std::string_view("value = " + text));
    if (parsed.size() == 1) return make_raw_value(*parsed.get("value"));
  } catch (const toml::parse_error& error) {
    const bool structured =
        !text.empty() && std::string_view("[{\"'").find(text[0]) != std::string_view::npos;
    if (structured) {
      problem = describe_syntax_error(error);
      return std::nullopt;
    }
  }
  return RawValue{text, "string \"" + shorten(escape_line(text)) + "\""};
}

}  // namespace

ConfigLayer parse_config_file(const std::string& path, const ConfigPosition* reached_from,
                              std::vector<ConfigProblem>& problems) {
  std::string problem;
  const auto text = read_text(path, problem);
  if (!text) {
    const ConfigPosition position = reached_from ? *reached_from : ConfigPosition{path};
    problems.push_back({position, reached_from ? "extends: " + path + " " + problem : problem});
    return {};
  }
  try {
    return flatten(toml::parse(std::string_view(*text), std::string_view(path)), path);
  } catch (const toml::parse_error& error) {
    problems.push_back({make_position(path, error.source().begin), describe_syntax_error(error)});
    return {};
  }
}

std::string read_toml_as_json(const std::string& path) {
  std::string problem;
  const auto text = read_text(path, problem);
  if (!text) throw ConfigError(path + ": " + problem);
  try {
    std::ostringstream json;
    json << toml::json_formatter(toml::parse(std::string_view(*text), std::string_view(path)));
    return json.str();
  } catch (const toml::parse_error& error) {
    throw ConfigError(make_position(path, error.source().begin).to_string() + ": " +
                      describe_syntax_error(error));
  }
}

ConfigLayer parse_set_options(const std::vector<std::string>& sets, std::vector<ConfigProblem>& problems) {
  ConfigLayer layer;
  int64_t number = 0;
  for (const auto& option : sets) {
    const size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    const ConfigPosition position{"--set " + escape_line(name), 0, ++number};
    if (equals == std::string::npos || name.empty()) {
      const ConfigPosition whole_option{"--set " + shorten(escape_line(option)), 0, number};
      problems.push_back({whole_option, "expected table.key=value"});
      continue;
    }
    if (find_invalid_utf8(option) != std::string::npos) {
      problems.push_back({position, "is not valid UTF-8, the encoding of a run's files"});
      continue;
    }
    std::string problem;
    const auto value = find_set_option_value(option.substr(equals + 1), problem);
    if (!value) {
      problems.push_back({position, problem});
      continue;
    }
    const size_t dot = name.find('.');
    const std::string table = dot == std::string::npos ? "" : name.substr(0, dot);
    const std::string key = dot == std::string::npos ? name : name.substr(dot + 1);
    layer.settings.push_back({table, key, *value, position, position});
  }
  return layer;
}

}  // namespace tapeformer
