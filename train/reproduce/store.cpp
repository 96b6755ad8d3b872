#include "train/reproduce/store.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/base/errors.h"
#include "core/system/machine.h"
#include "core/threads/threads.h"
#include "train/distributed/gather.h"
#include "train/loop/process_settings.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr char kSeedMark[] = "-seed-", kJson[] = ".json";

void create_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw FileError("create", path.string(), error.value());
}

std::optional<Json> read_object(const fs::path& path) {
  Json json = Json::parse(read_file(path.string()), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

bool is_string(const Json& json) {
  return json.is_string();
}

// JSON has no infinities and NaNs, so these values are stored as null.
bool is_number_or_null(const Json& json) {
  return json.is_number() || json.is_null();
}

// Returns whether `object` has a value for `key`, and `is_valid` returns true for the value.
template <class Check>
bool has_valid(const Json& object, const char* key, const Check& is_valid) {
  const auto value = object.find(key);
  return value != object.end() && is_valid(*value);
}
// Returns whether `object` has no value for `key`, or a value for which `is_valid` returns true.
template <class Check>
bool is_missing_or_valid(const Json& object, const char* key, const Check& is_valid) {
  return !object.contains(key) || has_valid(object, key, is_valid);
}

// Returns a function that checks whether a JSON value is an array with elements for which `is_valid` returns
// true.
template <class Check>
auto array_of(const Check& is_valid) {
  return [is_valid](const Json& json) {
    return json.is_array() && std::all_of(json.begin(), json.end(), is_valid);
  };
}
// Returns a function that checks whether a JSON value is an object with values for which `is_valid` returns
// true.
template <class Check>
auto object_of(const Check& is_valid) {
  return [is_valid](const Json& json) {
    return json.is_object() && std::all_of(json.begin(), json.end(), is_valid);
  };
}

bool is_point(const Json& json) {
  return json.is_array() && json.size() == 2 && json[0].is_number() && is_number_or_null(json[1]);
}

bool is_curve(const Json& json) {
  return json.is_object() && has_valid(json, "figure", is_string) && has_valid(json, "name", is_string) &&
         has_valid(json, "points", array_of(is_point));
}

// Returns whether `json` has the form of an output of `tapeformer train` or `tapeformer eval`.
bool is_output(const Json& json) {
  return json.is_object() && is_missing_or_valid(json, "run_dir", is_string);
}

// Returns whether `json` has the form of a value that the runner passes to ResultStore::put().
bool is_entry(const std::string& name, const Json& json) {
  if (!json.is_object()) return false;
  const auto is_integer = [](const Json& number) { return number.is_number_integer(); };
  for (const char* key : {"error", "commit", "machine", "date"})
    if (!is_missing_or_valid(json, key, is_string)) return false;
  if (name == kTestEvaluationEntry)
    return has_valid(json, "output", is_output) && has_valid(json, "commit", is_string) &&
           has_valid(json, "machine", is_string) && has_valid(json, "threads", is_integer) &&
           has_valid(json, "date", is_string);
  return is_missing_or_valid(json, "values", object_of(is_number_or_null)) &&
         is_missing_or_valid(json, "texts", object_of(is_string)) &&
         is_missing_or_valid(json, "curves", array_of(is_curve)) &&
         is_missing_or_valid(json, "pictures", array_of(is_string)) &&
         is_missing_or_valid(json, "threads", is_integer);
}

// Reads the results of a row and a seed. Throws DataError if the file is damaged.
Json read_results(const fs::path& path) {
  const std::optional<Json> results = read_object(path);
  const auto damaged = [&](const std::string& problem) {
    return DataError(
        path.string() + ": " + problem +
        "; the file is damaged: delete it and run the command again, to repeat the measurements");
  };
  if (!results) throw damaged("expected a JSON object");
  for (const auto& [name, entry] : results->items())
    if (!is_entry(name, entry)) throw damaged("\"" + name + "\" does not have the expected form");
  return *results;
}

Json make_identity(const Reproduction& reproduction, const ReproductionOptions& options) {
  return {{"table", reproduction.name},
          {"scale", list_table_scale_names()[static_cast<size_t>(options.scale)]},
          {"version", get_build_info().version},
          {"device", options.device_name()},
          {"settings", options.all_config_settings}};
}

void check_identity(const fs::path& path, const Json& own) {
  const auto found = read_object(path);
  if (!found) throw ConfigError(path.string() + ": expected a JSON object; choose another folder with --out");
  for (const auto& [key, value] : own.items()) {
    const Json other = found->value(key, Json());
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
std::string device_of(const ReproductionOptions& options, const ProcessGroup& processes) {
  RunConfig run;
  if (!options.overrides.device.empty()) run.device = options.overrides.device;
  const std::string device = make_process_run_config(run, processes).device;
  return device == "auto" ? options.device_name() : device;
}

}  // namespace

ResultStore::ResultStore(const Reproduction& reproduction, const ReproductionOptions& options,
                         const ProcessGroup& processes)
    : output_folder_(options.output_folder),
      runs_folder_(options.runs_folder.empty() ? options.output_folder / "runs" : options.runs_folder),
      device_(device_of(options, processes)) {
  for (const fs::path& folder :
       {output_folder_, output_folder_ / "cells", output_folder_ / "logs", runs_folder_})
    create_folder(folder);
  run_on_first_process(*processes.communicator, [&] {
    lock_.emplace(locked(output_folder_));
    return true;
  });
  const fs::path manifest = output_folder_ / "reproduce.json";
  const Json identity = make_identity(reproduction, options);
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

CommandContext ResultStore::make_command_context() const {
  return {.output_folder = output_folder_,
          .log_folder = output_folder_ / "logs",
          .runs_folder = runs_folder_,
          .threads = get_thread_count(),
          .device = device_};
}

fs::path ResultStore::result_path(const Row& row, int64_t seed) const {
  return output_folder_ / "cells" / (make_run_name(row, seed) + kJson);
}

Json ResultStore::get(const Row& row, int64_t seed) const {
  const fs::path path = result_path(row, seed);
  if (!fs::exists(path)) return Json::object();
  return read_results(path);
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
