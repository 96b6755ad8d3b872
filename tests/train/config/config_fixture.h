// A temporary folder for config files.
#pragma once

#include <string>
#include <vector>

#include "core/base/errors.h"
#include "tests/support/temp_dir.h"
#include "train/config/config.h"

namespace tapeformer {

// A TempDir for config files.
class TempFolder {
 public:
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    test::write_file(dir_ / name, text);
    return path(name);
  }

 private:
  test::TempDir dir_;
};

// Returns the message of the ConfigError that loading a config file throws, or "" if it does not throw.
inline std::string find_config_error(const std::string& path, const std::vector<std::string>& sets = {}) {
  try {
    load_config(path, sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace tapeformer
