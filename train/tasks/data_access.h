// Options for access to data sets. The options are not part of a config, because a config may come from an
// untrusted source.
#pragma once

#include <string>
#include <utility>

namespace tapeformer {

struct DataAccessOptions {
  std::string data_dir = {};  // folder of the data sets; empty: the default folders of data/sets/directory.h
  bool allow_commands = false;  // whether to run the shell commands in wav.scp of Kaldi directories

  DataAccessOptions() = default;
  DataAccessOptions(const char* folder) : data_dir(folder) {}
  DataAccessOptions(std::string folder, bool commands = false)
      : data_dir(std::move(folder)), allow_commands(commands) {}
};

}  // namespace tapeformer
