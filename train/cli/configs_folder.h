// The folder of the configs that belong to the program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tapeformer {

// Returns the first of these folders that contains a folder "reformer": the configs of the installed program,
// `configs` in a folder above the program, ./configs. Follows a link, by which a program that is built
// outside of the source folder finds the configs. Returns "" if no folder is found.
std::filesystem::path find_configs_folder();

// Returns the names of the configs in this folder, such as "quickstart" and "copy/linear". The folder
// `tables` contains tables of train/reproduce, and no configs.
std::vector<std::string> list_config_names();

// Returns the config in this folder that `name` names. Returns `name` if it is a file or no such name.
std::string find_config(const std::string& name);

}  // namespace tapeformer
