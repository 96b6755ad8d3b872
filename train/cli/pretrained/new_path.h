// Outputs that appear complete or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace tapeformer {

// Returns the path of a new file or folder. Throws ConfigError, which begins with the name of the `argument`,
// if the path exists or names no file.
std::filesystem::path check_new_path(const std::string& argument, const std::string& path);

// As check_new_path(), for a run with the name of the folder. Also throws ConfigError if the path is not
// valid UTF-8, or if the folder cannot be the name of a run.
std::filesystem::path check_new_run(const std::string& argument, const std::string& path);

// Calls write() with a temporary path beside `path`, and renames the result. Removes it if write() throws, or
// if a signal ends the process.
void write_new_path(const std::filesystem::path& path,
                    const std::function<void(const std::filesystem::path&)>& write);

}  // namespace tapeformer
