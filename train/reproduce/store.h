// Folder of a reproduction, which one run uses at a time. If a run has several processes, they share the
// folder. Process 0 writes reproduce.json, and each file of a row with one seed is written by one process:
//
//   reproduce.json        the table, the scale, the version, the device and the settings of the folder
//   runs/ROW-seed-N/      run directories
//   cells/ROW-seed-N.json training and measurements of a row with one seed
//   logs/                 configs, outputs and logs of the commands
//   table.json            the table (table_json.h), and the files that render.h makes from it
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/system/files.h"
#include "train/distributed/processes.h"
#include "train/reproduce/commands.h"

namespace tapeformer {

class Store {
 public:
  // Creates the folder if it does not exist, and locks it. Throws ConfigError if another run uses the folder,
  // or if this process does not see the folder of process 0. Also throws ConfigError if the folder was
  // created for another table, scale, version or device, or with other settings. Throws FileError if a file
  // cannot be read or written.
  Store(const Reproduction& reproduction, const ReproductionOptions& options, const Processes& processes);

  // Returns the stored results of a row with a seed: an object with the entries that put() has set.
  Json get(const Row& row, int64_t seed) const;
  // Sets an entry, "training" or the name of a measurement, and writes the file.
  void put(const Row& row, int64_t seed, const std::string& entry, Json value);
  // Returns the seeds for which the row has a file, in increasing order.
  std::vector<int64_t> seeds(const Row& row) const;

  // Returns the folders for the commands. The commands use as many threads as this process. If there are
  // several processes, each uses the device with the index Processes::local_rank.
  CommandContext context() const;

 private:
  std::filesystem::path file(const Row& row, int64_t seed) const;

  std::filesystem::path out_, runs_;
  std::string device_;
  std::optional<FolderLock> lock_;
};

}  // namespace tapeformer
