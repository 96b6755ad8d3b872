// The output folder of a reproduction. Only one run uses the folder at a time. If the run has several
// processes, the processes share the folder. Process 0 writes reproduce.json. For each pair of a row and a
// seed, only one process writes the files. The folder contains:
//
//   reproduce.json        the table, scale, program version, device and settings of the reproduction
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

// The entry of a training. It contains the commit, machine, threads and date of the training run, its time,
// its number of steps and `output`, the JSON output of `tapeformer train`; or its error.
inline constexpr char kTrainingEntry[] = "training";

// Returns the origin of a result: an object with the entries commit, machine, threads and date.
Json collect_provenance();

class ResultStore {
 public:
  // Creates options.output_folder if the folder does not exist, and locks the folder. Throws ConfigError if
  // another process has locked the folder, if reproduce.json contains a different table, scale, program
  // version, device or list of settings, or if this process does not see the files of process 0. Throws
  // DataError if a file of cells/ is damaged, and FileError if a file cannot be read or written.
  ResultStore(const Table& table, const ReproductionOptions& options, const ProcessGroup& processes);

  // Returns the stored results for a row and a seed: an object with the entries that put() has stored.
  // Throws DataError if the file with the results is damaged.
  Json get(const Row& row, int64_t seed) const;
  // Stores `value` as the entry `entry` of the results for `row` and `seed`, and writes these results to
  // cells/ROW-seed-N.json. `entry` is kTrainingEntry or the name of a measurement.
  void put(const Row& row, int64_t seed, const std::string& entry, Json value);
  // Returns the seeds for which results of the row are stored, in increasing order.
  std::vector<int64_t> list_seeds(const Row& row) const;

  const std::filesystem::path& runs_folder() const { return runs_folder_; }
  // Value of --device for the commands of this process. In a run with several processes,
  // make_process_run_config() selects the device.
  const std::string& device() const { return device_; }

 private:
  std::filesystem::path result_path(const Row& row, int64_t seed) const;

  std::filesystem::path output_folder_, runs_folder_;
  std::string device_;
  std::optional<FolderLock> lock_;
};

}  // namespace tapeformer
