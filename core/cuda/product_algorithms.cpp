#include "core/cuda/product_algorithms.h"

#include <filesystem>

#include "core/cuda/context.h"
#include "core/cuda/devices.h"
#include "core/system/folder.h"
#include "core/system/log.h"

namespace tapeformer::cuda {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;
constexpr char kTitle[] = "Tapeformer product algorithms, version 1\n";
constexpr char kChecksum[] = "checksum ";
constexpr char kHexDigits[] = "0123456789abcdef";

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += kHexDigits[static_cast<unsigned char>(byte) >> 4];
    text += kHexDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::optional<std::string> from_hex(const std::string& hex) {
  const std::string digits = kHexDigits;
  std::string bytes;
  if (hex.size() % 2 != 0) return std::nullopt;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const size_t high = digits.find(hex[i]), low = digits.find(hex[i + 1]);
    if (high == std::string::npos || low == std::string::npos) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

// Returns the last line of the file in which the chosen algorithms are saved. `text` contains all preceding
// lines of the file. The returned line contains the FNV-1a hash of `text`.
std::string make_checksum_line(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(hash >> shift & 0xFF);
  return kChecksum + to_hex(bytes) + "\n";
}

// Returns the first lines of the file in which the chosen algorithms are saved. These lines contain the
// version of the format, the name of the device, and the versions of the driver and of cuBLAS.
std::string make_header() {
  const auto index = static_cast<size_t>(get_context().device);
  return concat_text(kTitle, "device ", list_devices().at(index).name, "\ndriver ", driver_version(),
                     "\ncublas ", cublasLtGetVersion(), "\n");
}

// Parses lines of the form "NAME = ALGORITHM", where ALGORITHM is in hexadecimal. Returns the bytes of the
// algorithms by name, or nullopt if a line has another form.
std::optional<std::map<std::string, std::string>> parse_choices(const std::string& lines) {
  std::map<std::string, std::string> choices;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string line = lines.substr(begin, end - begin);
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos) return std::nullopt;
    const auto algorithm = from_hex(line.substr(equals + 3));
    if (!algorithm) return std::nullopt;
    choices[line.substr(0, equals)] = *algorithm;
    begin = end + 1;
  }
  return choices;
}

std::mutex& counts_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
ProductTuningCounts process_counts;

}  // namespace

ProductTuningCounts get_product_tuning_counts() {
  const std::scoped_lock lock(counts_mutex());
  return process_counts;
}

void add_product_tuning_counts(const ProductTuningCounts& counts) {
  const std::scoped_lock lock(counts_mutex());
  process_counts.timed_plans += counts.timed_plans;
  process_counts.reused_choices += counts.reused_choices;
  process_counts.failed_algorithms += counts.failed_algorithms;
  process_counts.unfused_products += counts.unfused_products;
}

ProductTuningScope::ProductTuningScope(Device device, const std::string& path) : device_(device) {
  const DeviceScope scope(device_);
  ProductAlgorithmChoices::current().start_tuning(path);
}

ProductTuningScope::~ProductTuningScope() {
  const DeviceScope scope(device_);
  ProductAlgorithmChoices::current().stop_tuning();
}

ProductAlgorithmChoices& ProductAlgorithmChoices::current() {
  static auto& objects = *new PerDevice<ProductAlgorithmChoices>;
  return objects.get(get_context().device, [] { return new ProductAlgorithmChoices; });
}

void ProductAlgorithmChoices::start_tuning(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  is_tuning_ = true;
  ++generation_;
  path_ = path;
  header_ = make_header();
  choices_.clear();
  load_file();
}

void ProductAlgorithmChoices::stop_tuning() {
  const std::scoped_lock lock(mutex_);
  is_tuning_ = false;
  ++generation_;
  choices_.clear();
}

std::optional<std::string> ProductAlgorithmChoices::find_choice(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  const auto found = choices_.find(name);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

void ProductAlgorithmChoices::save_choice(const std::string& name, const std::string& algorithm) {
  const std::scoped_lock lock(mutex_);
  choices_[name] = algorithm;
  save_file();
}

void ProductAlgorithmChoices::load_file() {
  if (path_.empty() || !std::filesystem::exists(path_)) return;
  std::string text;
  try {
    text = read_file(path_, kMaxFileBytes);
  } catch (const FileError& error) {
    log_warning(error.what(), "; matrix products are timed again");
    return;
  }
  const size_t end = text.rfind(kChecksum);
  const bool is_intact = end != std::string::npos && text.starts_with(kTitle) &&
                         make_checksum_line(text.substr(0, end)) == text.substr(end);
  if (is_intact && !text.starts_with(header_)) {
    log_info(path_,
             ": written on another device or with another driver or cuBLAS; matrix products are timed ",
             "again");
    return;
  }
  auto choices = is_intact ? parse_choices(text.substr(header_.size(), end - header_.size())) : std::nullopt;
  if (choices)
    choices_ = std::move(*choices);
  else
    log_warning(path_, ": the file is damaged; matrix products are timed again");
}

void ProductAlgorithmChoices::save_file() {
  if (path_.empty()) return;
  std::string text = header_;
  for (const auto& [name, algorithm] : choices_) text += name + " = " + to_hex(algorithm) + "\n";
  const std::filesystem::path path = std::filesystem::absolute(path_);
  try {
    Folder(path.parent_path().string())
        .replace_file(path.filename().string(), text + make_checksum_line(text));
  } catch (const FileError& error) {
    log_warning(error.what(),
                "; the algorithms of matrix products are not saved, and later runs may use others");
    path_.clear();
  }
}

}  // namespace tapeformer::cuda
