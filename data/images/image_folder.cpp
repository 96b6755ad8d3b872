#include "data/images/image_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "core/random/rng.h"
#include "core/system/log.h"
#include "core/threads/threads.h"
#include "data/files/checksum.h"
#include "data/files/faults.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"
#include "data/images/jpeg.h"
#include "data/images/picture.h"
#include "data/shared_options.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSetName = "images";

// Appends the paths of the pictures in `folder` and its subfolders to list.paths. Appends a message for each
// unusable entry to list.faults. `prefix` is the path of `folder` relative to the folder in which the
// search started; `prefix` is empty or ends with a slash. `parents` contains the resolved paths of the
// enclosing folders and is used to detect circular links.
void walk(const fs::path& folder, const std::string& prefix, std::vector<fs::path> parents,
          PicturePathList& list) {
  std::error_code error;
  parents.push_back(fs::canonical(folder, error));
  for (const fs::directory_entry& entry : list_folder(folder)) {
    const std::string name = prefix + entry.path().filename().string();
    const fs::path real = fs::canonical(entry.path(), error);
    if (error) {
      list.faults.push_back(entry.path().string() + ": is a link without a target");
    } else if (fs::is_directory(real)) {
      if (std::find(parents.begin(), parents.end(), real) == parents.end())
        walk(entry.path(), name + "/", parents, list);
      else
        list.faults.push_back(entry.path().string() + ": is a link to a folder that contains it");
    } else if (is_picture_name(entry.path())) {
      if (find_invalid_utf8(name) == std::string::npos)
        list.paths.push_back(name);
      else
        list.faults.push_back(entry.path().string() + ": the name is not valid UTF-8");
    }
  }
}

uint64_t hash_of(const std::string& path) {
  const PhiloxBlock bits = RandomStream(0, path).block(0);
  return uint64_t{bits[1]} << 32 | bits[0];
}

// The decoded pictures of a folder. `faults` contains a message for each picture that cannot be used.
struct DecodedImages {
  Tensor pixels;  // (count, dims) uint8
  Faults faults;
};

DecodedImages decode(const std::string& folder, const std::vector<std::string>& paths,
                     const ImageFolderOptions& options) {
  const auto count = static_cast<int64_t>(paths.size());
  const int64_t dims = options.image_size * options.image_size * options.channels;
  const Tensor all = Tensor::empty({count, dims}, DType::uint8);
  Faults faults(paths.size());
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const fs::path path = fs::path(folder) / paths[static_cast<size_t>(i)];
      try {
        const Tensor picture = read_picture(path);
        if (std::min(picture.size(0), picture.size(1)) < options.image_size)
          throw DataError(concat_text(path.string(), ": has ", picture.size(1), " x ", picture.size(0),
                                      " pixels, expected at least ", options.image_size, " x ",
                                      options.image_size, " (", name_option("ImageFolderOptions::image_size"),
                                      ")"));
        const Tensor image = crop_and_resize_to_square(picture, options.image_size, options.channels);
        std::memcpy(all.data<uint8_t>() + i * dims, image.data<uint8_t>(), static_cast<size_t>(dims));
      } catch (const DataError& fault) {
        faults[static_cast<size_t>(i)] = fault.what();
      }
    }
  });
  int64_t kept = 0;
  DecodedImages decoded;
  for (int64_t i = 0; i < count; ++i) {
    if (const std::string& fault = faults[static_cast<size_t>(i)]; !fault.empty()) {
      decoded.faults.push_back(fault);
      continue;
    }
    if (kept < i) std::memcpy(all.data<uint8_t>() + kept * dims, all.data<uint8_t>() + i * dims, dims);
    ++kept;
  }
  decoded.pixels = all.view({kept, dims}, {dims, 1});
  return decoded;
}

// A file that caches the decoded images of a list of pictures. The file contains a magic number, sizes,
// faults, pixels and a CRC-32. The file name is a hash of the image size, the number of channels, whether
// this build can decode JPEG files, and the path, size, modification time and read permission of each
// picture.
class ImageCache {
 public:
  ImageCache(const std::string& folder, const std::vector<std::string>& paths,
             const ImageFolderOptions& options)
      : dims_(options.image_size * options.image_size * options.channels) {
    std::string key = concat_text(kMagic, " ", options.image_size, " ", options.channels,
                                  can_decode_jpeg() ? "" : " without JPEG", "\n");
    for (const std::string& relative_path : paths) {
      std::error_code error;
      const fs::path path = fs::path(folder) / relative_path;
      const auto time = fs::last_write_time(path, error).time_since_epoch().count();
      const bool is_readable = access(path.c_str(), R_OK) == 0;
      key += concat_text(path.string(), "\t", fs::file_size(path, error), "\t", time,
                         is_readable ? "" : "\t-", "\n");
    }
    const Checksum whole = compute_checksum(key),
                   reversed = compute_checksum(std::string(key.rbegin(), key.rend()));
    path_ = (fs::path(options.cache_folder) /
             (concat_text(format_crc32(whole.crc32), format_crc32(reversed.crc32), whole.bytes) + ".images"))
                .string();
  }

  // Reads the cache. Returns false if the file does not exist, cannot be read or is damaged.
  bool read(DecodedImages& decoded) const {
    std::error_code ignored;
    if (!fs::is_regular_file(path_, ignored)) return false;
    std::string text;
    try {
      text = read_file(path_);
    } catch (const FileError& error) {
      log_warning(error.what(), "; the pictures are decoded again");
      return false;
    }
    Header header{};
    if (text.size() >= sizeof header + sizeof(uint32_t)) std::memcpy(&header, text.data(), sizeof header);
    const size_t body = text.size() - std::min(text.size(), sizeof header + sizeof(uint32_t));
    uint32_t crc32 = 0;
    if (std::memcmp(header.magic, kMagic, sizeof header.magic) != 0 || header.count < 0 ||
        header.fault_bytes < 0 || static_cast<size_t>(header.fault_bytes) > body ||
        (body - static_cast<size_t>(header.fault_bytes)) / static_cast<size_t>(dims_) !=
            static_cast<size_t>(header.count)) {
      log_warning(path_, ": the cache of images is damaged; the pictures are decoded again");
      return false;
    }
    std::memcpy(&crc32, text.data() + text.size() - sizeof crc32, sizeof crc32);
    if (compute_checksum(std::string_view(text).substr(0, text.size() - sizeof crc32)).crc32 != crc32) {
      log_warning(path_, ": the cache of images is damaged; the pictures are decoded again");
      return false;
    }
    const std::string faults = text.substr(sizeof header, static_cast<size_t>(header.fault_bytes));
    for (size_t begin = 0; begin < faults.size();) {
      const size_t end = faults.find('\0', begin);
      decoded.faults.push_back(faults.substr(begin, end - begin));
      begin = end + 1;
    }
    decoded.pixels = Tensor::empty({header.count, dims_}, DType::uint8);
    std::memcpy(decoded.pixels.raw_data(), text.data() + sizeof header + faults.size(),
                static_cast<size_t>(decoded.pixels.bytes()));
    return true;
  }

  void write(const DecodedImages& decoded) const {
    std::string faults;
    for (const std::string& fault : decoded.faults) faults += fault + '\0';
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof header.magic);
    header.count = decoded.pixels.size(0);
    header.fault_bytes = static_cast<int64_t>(faults.size());
    std::string text(reinterpret_cast<const char*>(&header), sizeof header);
    text += faults;
    text.append(static_cast<const char*>(decoded.pixels.raw_data()),
                static_cast<size_t>(decoded.pixels.bytes()));
    const uint32_t crc32 = compute_checksum(text).crc32;
    text.append(reinterpret_cast<const char*>(&crc32), sizeof crc32);
    replace_file(path_, text);
  }

 private:
  static constexpr char kMagic[] = "tfimage3";
  struct Header {
    char magic[8];
    int64_t count, fault_bytes;
  };

  int64_t dims_;
  std::string path_;
};

// Creates the folder of the cache if it does not exist. Throws ConfigError if the folder cannot be created or
// is not writable.
void prepare_cache_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error)
    throw ConfigError(folder + ": cannot write to the folder of the image cache: " + error.message());
}

DecodedImages decode_or_read(const std::string& folder, const std::vector<std::string>& paths,
                             const ImageFolderOptions& options) {
  DecodedImages decoded;
  if (options.cache_folder.empty()) return decode(folder, paths, options);
  const ImageCache cache(folder, paths, options);
  if (cache.read(decoded)) return decoded;
  prepare_cache_folder(options.cache_folder);
  decoded = decode(folder, paths, options);
  cache.write(decoded);
  return decoded;
}

void report_faults(const Faults& faults, const std::string& folder, bool refuse) {
  if (faults.empty()) return;
  const std::string text = format_faults(faults);
  if (refuse) throw DataError(concat_text(folder, ": ", faults.size(), " files cannot be used:\n", text));
  log_warning(folder, ": left out ", faults.size(), " files:\n", text);
}

OptionTable<ImageFolderOptions> make_table() {
  using O = ImageFolderOptions;
  OptionTable<O> table(OptionUse::data);
  table
      .add("image_size", &O::image_size,
           "side of the square images; pictures are cropped at the centre and averaged")
      .use_for(OptionUse::model)
      .require_range(2, 512);
  table.add_choice<int64_t>("color", &O::channels, {{"rgb", 3}, {"gray", 1}}, "rgb or gray")
      .use_for(OptionUse::model);
  table.add_choice("bad_images", &O::reject_faulty_files, {{"drop", false}, {"refuse", true}},
                   "treatment of files that cannot be used");
  table.add("image_cache", &O::cache_folder, "folder for decoded pictures; empty: none")
      .mark_as_path()
      .allow_change_on_resume();
  add_split_options(table);
  return table;
}

}  // namespace

std::vector<DatasetKind> make_image_folder_kinds() {
  const auto table = make_table();
  DatasetKind kind{
      .name = kSetName, .options = table.specs(), .type = DatasetType::images, .model_types = {"image"}};
  kind.get_info = [table](const OptionValues& values, const DatasetRequest& request) {
    const ImageFolderOptions options = table.read(values);
    return make_image_info(kSetName, request.split, options.image_size, options.image_size, options.channels);
  };
  kind.make = [table](const OptionValues& values, const DatasetRequest& request) {
    ImageFolderOptions options = table.read(values);
    options.limit = request.limit;
    return make_image_dataset(load_image_folder(request.split, options));
  };
  kind.has_validation_split = [table](const OptionValues& values) {
    return has_validation_part(table.read(values));
  };
  kind.find_problems = [table](const OptionValues& values) {
    return find_split_problems(table.read(values),
                               concat_text("data set \"", kSetName, "\" needs the folder of the pictures"));
  };
  return {kind};
}

PicturePathList list_picture_paths(const std::string& folder) {
  if (!is_folder(folder)) throw DataError(folder + ": is not a folder");
  PicturePathList list;
  walk(folder, "", {}, list);
  return list;
}

std::vector<std::string> select_split_paths(std::vector<std::string> paths, const std::string& split,
                                            double valid_share, double test_share) {
  require_split(split);
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return std::pair(hash_of(a), a) < std::pair(hash_of(b), b);
  });
  const auto part = [&](double share) {
    return static_cast<int64_t>(std::ceil(share * static_cast<double>(paths.size())));
  };
  const auto test = paths.begin() + part(test_share);
  const auto valid = test + std::min<int64_t>(part(valid_share), paths.end() - test);
  if (split == "test") return {paths.begin(), test};
  if (split == "valid") return {test, valid};
  return {valid, paths.end()};
}

ImageSet load_image_folder(const std::string& split, const ImageFolderOptions& options) {
  const bool has_folder =
      (split == "valid" && !options.valid_path.empty()) || (split == "test" && !options.test_path.empty());
  const std::string folder = !has_folder        ? options.path
                             : split == "valid" ? options.valid_path
                                                : options.test_path;
  const PicturePathList list = list_picture_paths(folder);
  std::vector<std::string> paths =
      select_split_paths(list.paths, has_folder ? "train" : split,
                         has_folder || !options.valid_path.empty() ? 0 : options.valid_share,
                         has_folder || !options.test_path.empty() ? 0 : options.test_share);
  if (options.limit > 0 && static_cast<int64_t>(paths.size()) > options.limit)
    paths.resize(static_cast<size_t>(options.limit));
  if (paths.empty())
    throw_with_faults(concat_text(folder, ": no PNG or JPEG files for the split \"", split, "\"; found ",
                                  list.paths.size(), " pictures in all"),
                      list.faults);
  DecodedImages decoded = decode_or_read(folder, paths, options);
  Faults faults = list.faults;
  faults.insert(faults.end(), decoded.faults.begin(), decoded.faults.end());
  const int64_t count = decoded.pixels.size(0);
  if (count == 0) throw_with_faults(folder + ": no picture of the split \"" + split + "\" is usable", faults);
  report_faults(faults, folder, options.reject_faulty_files);
  log_info(kSetName, ": ", count, " pictures of ", split, ", ", options.image_size, " x ", options.image_size,
           " x ", options.channels, ", from ", folder);
  return {decoded.pixels,
          Tensor::zeros({count}, DType::int64),
          options.image_size,
          options.image_size,
          options.channels,
          kSetName,
          split};
}

}  // namespace tapeformer
