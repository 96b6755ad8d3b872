// Checks that the values of config keys do not contradict each other. Each value must already be valid for
// its key. Internal to the config code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/config/parse.h"

namespace tapeformer {

// Appends a problem for every contradiction between the keys of `config`. `find_position` returns the
// position of a key. If the key is not set, `find_position` returns the position of the table of the key.
// If `check_model` is false, find_model_problems() is not called. Problems of keys of the data set and the
// model are left out if `is_used` is false, because a command cannot change keys that it does not use.
void check_config(const Config& config, bool check_model,
                  const std::function<ConfigPosition(const std::string&)>& find_position,
                  const std::function<bool(const std::string&)>& is_used,
                  std::vector<ConfigProblem>& problems);

}  // namespace tapeformer
