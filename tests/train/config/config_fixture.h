// A temporary folder for config files, and attention kinds with options for tests.
#pragma once

#include <string>
#include <vector>

#include "core/base/errors.h"
#include "tests/support/temp_dir.h"
#include "train/build.h"
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

inline AttentionCatalogue make_test_catalogue() {
  return {{"softmax", "linear", "lsh"},
          [](const std::string& kind) -> std::vector<OptionSpec> {
            if (kind == "softmax") return {};
            if (kind == "linear")
              return {{.name = "chunk", .default_value = int64_t{64}, .help = "chunk", .min = 1, .max = 4096},
                      {.name = "eps", .default_value = 1e-6, .help = "added to the denominator", .min = 0},
                      {.name = "feature_map",
                       .default_value = std::string("elu"),
                       .help = "feature map",
                       .choices = {"elu", "relu", "exp"}}};
            return {{.name = "rounds", .default_value = int64_t{1}, .help = "hash rounds", .min = 1},
                    {.name = "exact", .default_value = false, .help = "whole buckets"},
                    {.name = "weights", .default_value = std::vector<double>{1, 0.5}, .help = "of rounds"},
                    {.name = "labels", .default_value = std::vector<std::string>{"a"}, .help = "of rounds"}};
          },
          nullptr,
          find_model_problems};
}

// Returns the message of the ConfigError that loading a config file throws, or "" if it does not throw.
inline std::string find_config_error(const std::string& path, const std::vector<std::string>& sets = {}) {
  try {
    load_config(path, sets, make_test_catalogue());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace tapeformer
