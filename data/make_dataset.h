// Functions that make a data set from its name in the catalogue. The data set contains images, text,
// synthetic sequences or sets of vectors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/batches/dataset.h"
#include "data/images/image_folder.h"
#include "data/recall_tasks.h"
#include "data/text/prompts/prompt_dataset.h"
#include "data/text/text_dataset.h"

namespace tapeformer {

struct DatasetOptions {
  std::string name;             // name of a data set (data/sets/catalogue.h)
  std::string split = "train";  // "train", "valid" or "test"
  // Directory that contains the folder of the data set. If `data_dir` is empty, the default directories are
  // searched (data/sets/directory.h).
  std::string data_dir;
  int64_t limit = 0;  // maximum number of examples, from the start of the split; 0: all

  // Options of "mnist", "fashion-mnist" and "cifar10". The data set "images" ignores these options.
  int64_t validation_count = 0;  // the split "valid" contains the last validation_count training examples
  bool use_grey = false;         // converts RGB images to grey images
  int64_t downscale = 1;         // averages blocks of downscale x downscale pixels

  // Options of the data set "images", which contains the user's own pictures. image_folder_options.limit is
  // ignored; `limit` is used instead.
  ImageFolderOptions image_folder_options = {};

  // Options of synthetic sequences; see SymbolTaskOptions.
  uint64_t seed = 0;
  int64_t max_length = 128;
  int64_t symbols = 10;
  int64_t test_length = 0;

  // Options of mqar, which also uses seed, max_length and test_length; see RecallOptions.
  int64_t tokens = 8192, pairs = 8, min_pairs = 0, test_pairs = 0;
  double power = 0.01;

  // Options of ListOps, which also uses seed and max_length; see ListOpsOptions. Parity uses min_length, too.
  int64_t min_length = 0, max_depth = 10, max_args = 10;

  // Options of sets of vectors, which also use seed, min_length and max_length; see SetTaskOptions.
  int64_t components = 4;

  // Options of text data sets. text_options.limit is ignored; `limit` is used instead. If the data set is in
  // a data directory, text_options.path is also ignored.
  TextOptions text_options = {};
  PromptOptions prompt_options = {};                     // of the data set "prompts", with text_options
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // if null, text_options determines the tokenizer
};

// Return the options of synthetic sequences and of mqar.
SymbolTaskOptions make_symbol_options(const DatasetOptions& options);
RecallOptions make_recall_options(const DatasetOptions& options);

// Returns the tokenizer of a text data set: options.tokenizer or, if it is null, the tokenizer that
// options.text_options describes. Throws the errors of make_tokenizer(const TextOptions&, uint64_t).
std::shared_ptr<const Tokenizer> make_tokenizer(const DatasetOptions& options);

// Returns the same information as make_dataset(options)->info(), but does not need the training data. The
// function reads files only if options.tokenizer is null and a tokenizer must be made. Throws ConfigError for
// unknown names and invalid options.
DatasetInfo make_dataset_info(const DatasetOptions& options);

// Returns a data set of images, text, synthetic sequences or sets of vectors. A batch of images consists of
// the uint8 tensor `tokens` with shape (batch, height * width * channels) and the int64 tensor `labels` with
// shape (batch,). Throws ConfigError for unknown names and invalid options. Throws DataError for missing or
// corrupt files.
std::shared_ptr<const Dataset> make_dataset(const DatasetOptions& options);

}  // namespace tapeformer
