#include "train/reproduce/store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <map>

#include "core/base/errors.h"
#include "core/system/machine.h"
#include "core/threads/threads.h"
#include "train/distributed/gather.h"
#include "train/loop/process_settings.h"
#include "train/version.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr char kSeedMark[] = "-seed-", kJson[] = ".json";

void create_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw FileError("create", path.string(), error.value());
}

// Throws Json::exception if `entry` does not have the form of an entry of ResultStore. JSON has no infinities
// and NaNs, so such numbers are stored as null.
void check_entry(const Json& entry) {
  const auto check_number = [](const Json& value) { return value.is_null() ? 0 : value.get<double>(); };
  for (const char* key : {"error", "commit", "machine", "date"})
    if (entry.contains(key)) entry.at(key).get_ref<const std::string&>();
  entry.value("threads", int64_t{0});
  entry.value("texts", std::map<std::string, std::string>());
  entry.value("pictures", Words());
  const Json values = entry.value("values", Json::object()), curves = entry.value("curves", Json::array()),
             output = entry.value("output", Json::object());
  for (const auto& [name, value] : values.items()) check_number(value);
  for (const Json& curve : curves) {
    for (const char* key : {"figure", "name"}) curve.at(key).get_ref<const std::string&>();
    for (const auto& [x, y] : curve.at("points").get<std::vector<std::pair<double, Json>>>()) check_number(y);
  }
  for (const char* key : {"split", "run_dir"}) output.value(key, "");
}

// Reads the results of a row and a seed. Throws DataError if the file is damaged.
Json read_results(const fs::path& path) try {
  const Json results = Json::parse(read_file(path.string()));
  for (const auto& [name, entry] : results.get<std::map<std::string, Json>>()) check_entry(entry);
  return results;
} catch (const Json::exception& error) {
  throw DataError(concat_text(path.string(), ": ", error.what(),
                              "; the file is damaged: delete it and run the command again, to repeat the "
                              "measurements"));
}

Json make_identity(const Table& table, const ReproductionOptions& options) {
  return {{"table", table.name},
          {"scale", options.scale},
          {"version", get_build_info().version},
          {"device", options.device},
          {"settings", options.all_config_settings}};
}

void check_identity(const fs::path& path, const Json& own) {
  const Json found = Json::parse(read_file(path.string()), nullptr, false);
  if (!found.is_object())
    throw ConfigError(path.string() + ": expected a JSON object; choose another folder with --out");
  for (const auto& [key, value] : own.items()) {
    const Json other = found.value(key, Json());
    if (other != value)
      throw ConfigError(concat_text(path.parent_path().string(), " belongs to the ", key, " ", other.dump(),
                                    ", and not to ", value.dump(), "; choose another folder with --out"));
  }
}

FolderLock locked(const fs::path& out) try {
  return FolderLock(out.string());
} catch (const FileError& error) {
  if (error.error_number() != EWOULDBLOCK) throw;
  throw ConfigError("another process uses " + out.string() + "; choose another folder with --out");
}

// Returns the value of --device for the commands that this process runs.
std::string choose_device(const ReproductionOptions& options, const ProcessGroup& processes) {
  RunConfig run;
  if (!options.overrides.device.empty()) run.device = options.overrides.device;
  const std::string device = make_process_run_config(run, processes).device;
  return device == "auto" ? options.device : device;
}

// Returns a text with the number of available cores, the name of the processor, and the supported extensions
// among AVX2, AVX-512, AVX512-BF16 and AMX.
std::string describe_machine() {
  const MachineInfo machine = get_machine_info();
  std::string name = machine.processor_name;
  for (const std::string mark : {"(R)", "(TM)"})
    for (size_t at; (at = name.find(mark)) != std::string::npos;) name.erase(at, mark.size());
  std::string extensions;
  for (const auto& [flag, text] : {std::pair{"avx2", "AVX2"},
                                   {"avx512f", "AVX-512"},
                                   {"avx512_bf16", "AVX512-BF16"},
                                   {"amx_bf16", "AMX"}})
    if (machine.instruction_set.find(flag) != std::string::npos)
      extensions += (extensions.empty() ? " (" : ", ") + std::string(text);
  if (!extensions.empty()) extensions += ")";
  return fmt::format("{} {} of {}{}", machine.processor_count,
                     machine.processor_count == 1 ? "core" : "cores",
                     name.empty() ? "an unknown processor" : name, extensions);
}

}  // namespace

Json collect_provenance() {
  return {{"commit", get_source_commit()},
          {"machine", describe_machine()},
          {"threads", get_thread_count()},
          {"date", fmt::format("{:%Y-%m-%dT%H:%MZ}", fmt::gmtime(std::time(nullptr)))}};
}

ResultStore::ResultStore(const Table& table, const ReproductionOptions& options,
                         const ProcessGroup& processes)
    : output_folder_(options.output_folder),
      runs_folder_(options.runs_folder.empty() ? options.output_folder / "runs" : options.runs_folder),
      device_(choose_device(options, processes)) {
  for (const fs::path& folder :
       {output_folder_, output_folder_ / "cells", output_folder_ / "logs", runs_folder_})
    create_folder(folder);
  run_on_first_process(*processes.communicator, [&] {
    lock_.emplace(locked(output_folder_));
    return true;
  });
  const fs::path manifest = output_folder_ / "reproduce.json";
  const Json identity = make_identity(table, options);
  if (fs::exists(manifest))
    check_identity(manifest, identity);
  else if (processes.communicator->is_first())
    replace_file(manifest.string(), identity.dump(2) + "\n");
  processes.communicator->barrier();
  if (!fs::exists(manifest))
    throw ConfigError(
        output_folder_.string() + ": process " + std::to_string(processes.communicator->rank()) +
        " does not see the files of process 0; choose a folder that all machines share with --out");
  std::error_code error;
  const fs::path cells = output_folder_ / "cells";
  for (const auto& entry : fs::directory_iterator(cells, error))
    if (entry.path().extension() == kJson) read_results(entry.path());
  if (error) throw FileError("read", cells.string(), error.value());
}

fs::path ResultStore::result_path(const Row& row, int64_t seed) const {
  return output_folder_ / "cells" / (make_run_name(row.name, seed) + kJson);
}

Json ResultStore::get(const Row& row, int64_t seed) const {
  const fs::path path = result_path(row, seed);
  return fs::exists(path) ? read_results(path) : Json::object();
}

void ResultStore::put(const Row& row, int64_t seed, const std::string& entry, Json value) {
  Json json = get(row, seed);
  json[entry] = std::move(value);
  replace_file(result_path(row, seed).string(), json.dump(1) + "\n");
}

std::vector<int64_t> ResultStore::list_seeds(const Row& row) const {
  const std::string prefix = row.name + kSeedMark;
  std::vector<int64_t> seeds;
  for (const auto& entry : fs::directory_iterator(output_folder_ / "cells")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kJson)) continue;
    const char* const end = name.data() + name.size() - (std::size(kJson) - 1);
    int64_t seed = 0;
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, seed);
    if (parsed.ec == std::errc{} && parsed.ptr == end) seeds.push_back(seed);
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

}  // namespace tapeformer
