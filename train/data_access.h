// How a command reads data sets, as its command line says. Never part of a config: a config may come from
// elsewhere.
#pragma once

#include <string>
#include <utility>

namespace tapeformer {

struct DataAccess {
  std::string data_dir = {};    // see data/directory.h
  bool allow_commands = false;  // run the shell commands of wav.scp; else they are refused

  DataAccess(const char* folder) : data_dir(folder) {}
  DataAccess(std::string folder, bool commands = false)
      : data_dir(std::move(folder)), allow_commands(commands) {}
};

}  // namespace tapeformer
