#include "data/images/images.h"

#include <algorithm>
#include <cstring>

#include "core/options/option_names.h"
#include "core/options/option_table.h"
#include "core/system/log.h"
#include "core/threads/threads.h"
#include "data/dataset_kind.h"
#include "data/images/image_files.h"
#include "data/images/picture.h"
#include "data/sets/directory.h"

namespace tapeformer {
namespace {

std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// Examples [first, last) of the training or test files.
struct SplitRange {
  ImagePart part = ImagePart::train;
  int64_t first = 0, last = 0;
};

SplitRange find_split_range(const std::string& name, const std::string& split, int64_t train, int64_t test,
                            const ImageOptions& options) {
  if (options.limit < 0 || options.validation_count < 0)
    throw ConfigError(concat_text(name, ": limit (", options.limit, ") and validation (",
                                  options.validation_count, ") must not be negative"));
  if (options.validation_count > 0 && options.validation_count >= train)
    throw ConfigError(concat_text(name, ": ", name_option("ImageOptions::validation_count"),
                                  ": expected fewer than the ", with_commas(train),
                                  " training examples, got ", options.validation_count));
  require_split(split);
  SplitRange range;
  if (split == "train")
    range = {ImagePart::train, 0, train - options.validation_count};
  else if (split == "valid")
    range = {ImagePart::train, train - options.validation_count, train};
  else
    range = {ImagePart::test, 0, test};
  if (split == "valid" && options.validation_count == 0)
    throw ConfigError(name + ": no validation split, because " +
                      name_option("ImageOptions::validation_count") + " is 0");
  if (options.limit > 0) range.last = std::min(range.last, range.first + options.limit);
  return range;
}

class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(ImageSet images) : images_(std::move(images)) {
    info_ = make_image_info(images_.name, images_.split, images_.height, images_.width, images_.channels);
  }

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return images_.pixels.size(0); }

  Batch batch(std::span<const int64_t> indices) const override {
    check_indices(indices);
    const auto count = static_cast<int64_t>(indices.size());
    const int64_t dims = images_.pixels.size(1);
    Batch batch;
    batch.tokens = Tensor::empty({count, dims}, DType::uint8);
    batch.labels = Tensor::empty({count}, DType::int64);
    const auto* pixels = images_.pixels.data<uint8_t>();
    const auto* labels = images_.labels.data<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = indices[static_cast<size_t>(i)];
      std::memcpy(batch.tokens.data<uint8_t>() + i * dims, pixels + index * dims, static_cast<size_t>(dims));
      batch.labels.data<int64_t>()[i] = labels[index];
    }
    return batch;
  }

 private:
  ImageSet images_;
  DatasetInfo info_;
};

OptionTable<ImageOptions> make_table(bool has_color) {
  using O = ImageOptions;
  OptionTable<O> table(OptionUse::model);
  if (has_color) table.add_choice("color", &O::use_grey, {{"rgb", false}, {"gray", true}}, "rgb or gray");
  table.add("downscale", &O::downscale, "average blocks of k x k pixels")
      .require_one_of_integers({1, 2, 4, 7});
  table.add("validation", &O::validation_count, "examples held out from the end of the training split")
      .use_for(OptionUse::data)
      .require_at_least(0);
  return table;
}

DatasetKind make_kind(const CatalogueEntry& set) {
  const auto table = make_table(set.channels == 3);
  DatasetKind kind{.name = std::string(set.name),
                   .help = std::string(set.title),
                   .options = table.specs(),
                   .type = DatasetType::images,
                   .model_types = {"image", "classification"},
                   .classes = set.classes};
  kind.get_info = [&set, table](const OptionValues& values, const DatasetRequest& request) {
    const ImageOptions options = table.read(values);
    return make_image_info(std::string(set.name), request.split, set.height / options.downscale,
                           set.width / options.downscale, options.use_grey ? 1 : set.channels);
  };
  kind.make = [&set, table](const OptionValues& values, const DatasetRequest& request) {
    ImageOptions options = table.read(values);
    options.data_dir = request.data_dir;
    options.limit = request.limit;
    return make_image_dataset(load_images(std::string(set.name), request.split, options));
  };
  kind.has_validation_split = [table](const OptionValues& values) {
    return table.read(values).validation_count > 0;
  };
  kind.find_problems = [&set, table](const OptionValues& values) {
    const int64_t k = table.read(values).downscale;
    OptionProblems problems;
    problems.require(set.height % k == 0 && set.width % k == 0, "downscale",
                     concat_text(k, " does not divide images of ", set.height, " x ", set.width));
    return problems;
  };
  return kind;
}

}  // namespace

std::shared_ptr<const Dataset> make_image_dataset(ImageSet images) {
  return std::make_shared<const ImageDataset>(std::move(images));
}

DatasetInfo make_image_info(const std::string& name, const std::string& split, int64_t height, int64_t width,
                            int64_t channels) {
  constexpr int64_t kByteValues = 256;
  return {name, split, kByteValues, height * width * channels - 1, height, width, channels};
}

std::vector<DatasetKind> make_image_kinds() {
  std::vector<DatasetKind> kinds;
  for (const CatalogueEntry& set : list_catalogue_entries())
    if (set.type == DatasetType::images) kinds.push_back(make_kind(set));
  return kinds;
}

void check_downscale(const std::string& name, int64_t height, int64_t width, int64_t k) {
  if (k < 1 || height % k != 0 || width % k != 0)
    throw ConfigError(concat_text(name, ": images of ", height, " x ", width,
                                  " cannot be averaged over blocks of ", k, " x ", k));
}

std::string describe_splits(const std::string& name, int64_t train, int64_t valid, int64_t test) {
  std::string text = name + ": " + with_commas(train) + " train, ";
  if (valid > 0) text += with_commas(valid) + " valid (the last of train), ";
  return text + with_commas(test) + " test";
}

ImageSet load_images(const std::string& name, const std::string& split, const ImageOptions& options) {
  const CatalogueEntry& known = require_catalogue_entry(
      name, [](const CatalogueEntry& set) { return set.type == DatasetType::images; },
      "a data set of images");
  const std::filesystem::path folder = require_dataset_folder(known, options.data_dir);
  const auto files = open_image_files(known, folder);
  const int64_t train = files->count_images(ImagePart::train), test = files->count_images(ImagePart::test);
  const SplitRange range = find_split_range(name, split, train, test, options);
  check_downscale(name, files->height, files->width, options.downscale);
  const int64_t count = range.last - range.first;
  if (count < 1) throw DataError(concat_text(folder.string(), ": ", name, " has no ", split, " examples"));

  LabelledImages read = files->read_images(range.part, range.first, range.last);
  const bool grey = options.use_grey && files->channels == 3;
  const int64_t k = options.downscale, channels = grey ? 1 : files->channels;
  if (grey) read.pixels = convert_images_to_grey(read.pixels);
  ImageSet set{downscale_images(read.pixels, files->height, files->width, channels, k),
               read.labels,
               files->height / k,
               files->width / k,
               channels,
               name,
               split};
  log_info(describe_splits(name, train - options.validation_count, options.validation_count, test),
           "; using ", with_commas(count), " of ", split, ", ", set.height, " x ", set.width, " x ",
           set.channels, k > 1 ? concat_text(" (blocks of ", k, " x ", k, " averaged)") : "", ", from ",
           folder.string());
  return set;
}

Tensor convert_images_to_grey(const Tensor& pixels) {
  check(pixels.rank() == 2 && pixels.size(1) % 3 == 0 && pixels.is_contiguous(), "convert_images_to_grey",
        "needs contiguous (count, 3 * pixels), not ", pixels.shape().to_string());
  const Tensor out = Tensor::empty({pixels.size(0), pixels.size(1) / 3}, DType::uint8);
  const auto* source = pixels.data<uint8_t>();
  auto* target = out.data<uint8_t>();
  parallel_for(out.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      target[i] = convert_to_grey(source[3 * i], source[3 * i + 1], source[3 * i + 2]);
  });
  return out;
}

Tensor downscale_images(const Tensor& pixels, int64_t height, int64_t width, int64_t channels, int64_t k) {
  check(k >= 1 && height % k == 0 && width % k == 0, "downscale_images", "blocks of ", k, " x ", k,
        " do not divide ", height, " x ", width);
  check(pixels.rank() == 2 && pixels.size(1) == height * width * channels && pixels.is_contiguous(),
        "downscale_images", "needs contiguous (count, ", height * width * channels, "), not ",
        pixels.shape().to_string());
  if (k == 1) return pixels;
  const int64_t rows = height / k, columns = width / k;
  Tensor out = Tensor::empty({pixels.size(0), rows * columns * channels}, DType::uint8);
  const auto* source = pixels.data<uint8_t>();
  auto* target = out.data<uint8_t>();
  const auto average = [&](const uint8_t* block) {
    int64_t sum = 0;
    for (int64_t y = 0; y < k; ++y)
      for (int64_t x = 0; x < k; ++x) sum += block[(y * width + x) * channels];
    return static_cast<uint8_t>((sum + k * k / 2) / (k * k));
  };
  parallel_for(pixels.size(0) * rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < columns * channels; ++i) {
        const int64_t column = i / channels, channel = i % channels;
        target[row * columns * channels + i] =
            average(source + (row * k * width + column * k) * channels + channel);
      }
  });
  return out;
}

}  // namespace tapeformer
