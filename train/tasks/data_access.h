// Options of the command line for reading data sets. They are not part of a config, because a config may come
// from a source that the user does not trust.
#pragma once

#include <string>
#include <utility>

namespace tapeformer {

struct DataAccess {
  std::string data_dir = {};    // see data/sets/directory.h
  bool allow_commands = false;  // run the shell commands of wav.scp

  DataAccess(const char* folder) : data_dir(folder) {}
  DataAccess(std::string folder, bool commands = false)
      : data_dir(std::move(folder)), allow_commands(commands) {}
};

}  // namespace tapeformer
