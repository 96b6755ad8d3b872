// The folder of the configs that belong to the program.
#pragma once

#include <filesystem>

namespace tapeformer {

// Returns the first of these folders that contains a folder "reformer": the configs of the installed program,
// `configs` in a folder above the program, ./configs. Returns "" if no folder is found.
std::filesystem::path find_configs_folder();

}  // namespace tapeformer
