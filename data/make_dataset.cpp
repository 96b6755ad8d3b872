#include "data/make_dataset.h"

#include <cstring>

#include "core/options/option_names.h"
#include "core/options/options.h"
#include "data/images/images.h"
#include "data/listops.h"
#include "data/set_tasks.h"
#include "data/sets/catalogue.h"
#include "data/sets/directory.h"
#include "data/symbol_tasks.h"

namespace tapeformer {
namespace {

constexpr int64_t kByteValues = 256;

class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(ImageSet images) : images_(std::move(images)) {
    info_ = {images_.name,   images_.split, kByteValues,     images_.pixels.size(1) - 1,
             images_.height, images_.width, images_.channels};
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

const CatalogueEntry& require_supported_entry(const std::string& name) {
  return require_catalogue_entry(name, [](const CatalogueEntry& set) {
    return set.type == DatasetType::images || set.type == DatasetType::text ||
           set.type == DatasetType::sequences || set.type == DatasetType::expressions ||
           set.type == DatasetType::vectors;
  });
}

// Returns the synthetic data set that `set` describes, or nullptr if `set` is not synthetic.
std::shared_ptr<const Dataset> make_synthetic_dataset(const CatalogueEntry& set,
                                                      const DatasetOptions& options) {
  const SymbolTaskOptions task = make_symbol_options(options);
  if (set.format == DatasetFormat::copy_task) return std::make_shared<CopyTask>(task);
  if (set.format == DatasetFormat::duplication_task) return std::make_shared<DuplicationTask>(task);
  if (set.format == DatasetFormat::palindrome) return std::make_shared<PalindromeTask>(task);
  if (set.format == DatasetFormat::parity)
    return std::make_shared<ParityTask>(ParityOptions{task, options.min_length});
  if (set.format == DatasetFormat::mqar) return std::make_shared<RecallTask>(make_recall_options(options));
  if (set.format == DatasetFormat::listops)
    return std::make_shared<ListOps>(ListOpsOptions{.split = options.split,
                                                    .min_length = options.min_length,
                                                    .max_length = options.max_length,
                                                    .max_depth = options.max_depth,
                                                    .max_args = options.max_args,
                                                    .example_count = options.limit,
                                                    .seed = options.seed});
  const SetTaskOptions sets{.split = options.split,
                            .min_length = options.min_length,
                            .max_length = options.max_length,
                            .components = options.components,
                            .example_count = options.limit,
                            .seed = options.seed};
  if (set.format == DatasetFormat::set_maximum) return std::make_shared<SetMaximumTask>(sets);
  if (set.format == DatasetFormat::set_mixture) return std::make_shared<SetMixtureTask>(sets);
  return nullptr;
}

TextOptions make_text_options(const CatalogueEntry& set, const DatasetOptions& options) {
  TextOptions text = options.text_options;
  text.limit = options.limit;
  if (!set.needs_path)
    text.path = require_file(require_dataset_folder(set, options.data_dir), set.files.front().name);
  return text;
}

}  // namespace

SymbolTaskOptions make_symbol_options(const DatasetOptions& options) {
  return {.split = options.split,
          .max_length = options.max_length,
          .symbols = options.symbols,
          .example_count = options.limit,
          .seed = options.seed,
          .test_length = options.test_length};
}

RecallOptions make_recall_options(const DatasetOptions& options) {
  return {.sequences = make_symbol_options(options),
          .tokens = options.tokens,
          .pairs = options.pairs,
          .test_pairs = options.test_pairs,
          .min_pairs = options.min_pairs,
          .power = options.power};
}

std::shared_ptr<const Tokenizer> make_tokenizer(const DatasetOptions& options) {
  if (options.tokenizer) return options.tokenizer;
  const TextOptions& text = options.text_options;
  if (text.tokenizer_name == kByteTokenizerName) return make_byte_tokenizer();
  const CatalogueEntry& set = require_supported_entry(options.name);
  const bool is_made_from_text =
      text.tokenizer_name == kCharacterTokenizerName ||
      (text.tokenizer_name == kSentencePieceTokenizerName && text.sentencepiece_model.empty());
  if (set.format == DatasetFormat::prompts && is_made_from_text)
    throw ConfigError(concat_text(name_option("TextOptions::tokenizer_name"), ": a tokenizer \"",
                                  text.tokenizer_name, "\" of the data set \"", set.name,
                                  "\" must be that of an earlier run or of a file"));
  return make_tokenizer(make_text_options(set, options), options.seed);
}

DatasetInfo make_dataset_info(const DatasetOptions& options) {
  const CatalogueEntry& set = require_supported_entry(options.name);
  if (const auto task = make_synthetic_dataset(set, options)) return task->info();
  if (set.format == DatasetFormat::image_folder) {
    const ImageFolderOptions& o = options.image_folder_options;
    return {options.name, options.split, kByteValues, o.image_size * o.image_size * o.channels - 1,
            o.image_size, o.image_size,  o.channels};
  }
  if (set.type == DatasetType::text)
    return {options.name, options.split, make_tokenizer(options)->vocabulary_size(),
            options.text_options.sequence_length};
  check_downscale(options.name, set.height, set.width, options.downscale);
  const int64_t height = set.height / options.downscale, width = set.width / options.downscale;
  const int64_t channels = options.use_grey ? 1 : set.channels;
  return {options.name, options.split, kByteValues, height * width * channels - 1, height, width, channels};
}

std::shared_ptr<const Dataset> make_dataset(const DatasetOptions& options) {
  const CatalogueEntry& set = require_supported_entry(options.name);
  if (auto task = make_synthetic_dataset(set, options)) return task;
  if (set.format == DatasetFormat::prompts)
    return std::make_shared<PromptDataset>(make_text_options(set, options), options.prompt_options,
                                           options.name, options.split, make_tokenizer(options));
  if (set.type == DatasetType::text)
    return std::make_shared<TextDataset>(make_text_options(set, options), options.name, options.split,
                                         make_tokenizer(options));
  if (set.format == DatasetFormat::image_folder) {
    ImageFolderOptions folder = options.image_folder_options;
    folder.limit = options.limit;
    return std::make_shared<ImageDataset>(load_image_folder(options.split, folder));
  }
  return std::make_shared<ImageDataset>(
      load_images(options.name, options.split,
                  ImageOptions{options.data_dir, options.validation_count, options.limit, options.use_grey,
                               options.downscale}));
}

}  // namespace tapeformer
