#include "data/text/text_dataset.h"

#include <algorithm>
#include <cmath>

#include "core/options/option_names.h"
#include "core/system/log.h"
#include "core/threads/threads.h"
#include "data/files/gzip.h"
#include "data/text/unknown_tokens.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxModelBytes = int64_t{1} << 28;
constexpr int64_t kByteTokens = 256;

struct TextRange {
  std::shared_ptr<const TextSource> text;
  int64_t first = 0, last = 0;
  int64_t bytes() const { return last - first; }
};

// Throws DataError if a file of the text is UTF-16 or UTF-32, unless the tokens are bytes.
std::shared_ptr<const TextSource> open_text(const std::vector<std::string>& paths,
                                            const std::string& tokenizer_name) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths)
    for (std::filesystem::path& file : list_text_files(path)) files.push_back(std::move(file));
  auto text = std::make_shared<const TextSource>(files);
  if (tokenizer_name == kByteTokenizerName) return text;
  if (const std::string problem = text->describe_encoding_problem(); !problem.empty())
    throw DataError(problem);
  return text;
}

// Returns the offset of the first byte of the character that contains the byte at `offset`.
int64_t find_character_start(const TextSource& text, int64_t offset) {
  const auto continues = [&](int64_t at) {
    return at > 0 && at < text.size() && (static_cast<uint8_t>(text.view(at, 1)[0]) & 0xC0) == 0x80;
  };
  for (int i = 0; i < 3 && continues(offset); ++i) --offset;
  return offset;
}

// Returns the range of a split of the text in options.path.
TextRange select_shared_range(const TextOptions& options, const std::string& split) {
  const double valid = options.valid_path.empty() ? options.valid_share : 0;
  const double test = options.test_path.empty() ? options.test_share : 0;
  if (valid + test >= 1)
    throw ConfigError(concat_text(name_option("TextOptions::valid_share"), " + ",
                                  name_option("TextOptions::test_share"), ": expected less than 1, got ",
                                  valid + test));
  auto text = open_text({options.path}, options.tokenizer_name);
  const auto bytes = static_cast<double>(text->size());
  // Tokenizers other than "bytes" require valid UTF-8, so a split must not begin within a character.
  const auto boundary = [&](int64_t offset) {
    return options.tokenizer_name == kByteTokenizerName ? offset : find_character_start(*text, offset);
  };
  const int64_t test_bytes = std::llround(bytes * test), valid_bytes = std::llround(bytes * valid);
  const int64_t test_first = boundary(text->size() - test_bytes);
  const int64_t valid_first = boundary(text->size() - test_bytes - valid_bytes);
  if (split == "train") return {text, 0, valid_first};
  if (split == "valid") return {text, valid_first, test_first};
  return {text, test_first, text->size()};
}

TextRange select_split_range(const TextOptions& options, const std::string& split) {
  const std::string& path = split == "valid" ? options.valid_path : options.test_path;
  if (split == "train" || path.empty()) return select_shared_range(options, split);
  const auto text = open_text({path}, options.tokenizer_name);
  return {text, 0, text->size()};
}

// The bytes of a text as tokens. read() copies the bytes from the TextSource, so the tokens need no
// additional memory.
class MappedTokens final : public TokenSequence {
 public:
  explicit MappedTokens(TextRange range) : range_(std::move(range)) {}
  int64_t size() const override { return range_.bytes(); }
  void read(int64_t first, int64_t count, uint8_t* out) const override {
    range_.text->read(range_.first + first, count, out);
  }
  void read(int64_t first, int64_t count, int64_t* out) const override {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    read(first, count, bytes.data());
    std::copy(bytes.begin(), bytes.end(), out);
  }

 private:
  TextRange range_;
};

template <class T>
class StoredTokens final : public TokenSequence {
 public:
  explicit StoredTokens(std::vector<T> tokens) : tokens_(std::move(tokens)) {}
  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
  void read(int64_t first, int64_t count, uint8_t* out) const override { copy(first, count, out); }
  void read(int64_t first, int64_t count, int64_t* out) const override { copy(first, count, out); }

 private:
  template <class U>
  void copy(int64_t first, int64_t count, U* out) const {
    std::transform(tokens_.begin() + first, tokens_.begin() + first + count, out,
                   [](T token) { return static_cast<U>(token); });
  }
  std::vector<T> tokens_;
};

// Returns the offset after the first line end in a text where the tokenizer can divide the text, or npos.
size_t find_divisible_line_end(std::string_view text, const Tokenizer& tokenizer) {
  for (size_t line = text.find('\n'); line != std::string_view::npos; line = text.find('\n', line + 1))
    if (tokenizer.can_divide(text, line + 1)) return line + 1;
  return std::string_view::npos;
}

// Divides a range into parts and returns the offsets of the ends of the parts. Each part ends at the first
// line end after its first MiB where the tokenizer can divide the text. If there is none, the last part of
// the file is longer. Other tokenizers than "bpe" can divide any text: if there is no line end in the 64 KiB
// after the first MiB of a part, the part ends after its first MiB, or up to 3 bytes earlier so that no
// character is divided. The last part of a file can be shorter.
std::vector<int64_t> part_ends(const TextRange& range, const Tokenizer& tokenizer) {
  constexpr int64_t kPartBytes = 1 << 20, kSearchedBytes = 1 << 16;
  const bool needs_line_end = tokenizer.name() == kBpeTokenizerName;
  std::vector<int64_t> ends;
  for (int64_t at = range.first; at < range.last;) {
    // A part is contiguous in memory, so it does not cross the end of a file.
    const int64_t in_file = static_cast<int64_t>(range.text->view(at, range.last - at).size());
    int64_t end = at + in_file;
    if (in_file > kPartBytes) {
      end = at + kPartBytes;
      const int64_t searched =
          needs_line_end ? in_file - kPartBytes : std::min(range.last - end, kSearchedBytes);
      const size_t line = find_divisible_line_end(range.text->view(end, searched), tokenizer);
      if (line != std::string_view::npos)
        end += static_cast<int64_t>(line);
      else
        end = needs_line_end ? at + in_file : find_character_start(*range.text, end);
    }
    ends.push_back(end);
    at = end;
  }
  return ends;
}

template <class T>
std::unique_ptr<const TokenSequence> make_stored_tokens(const TextRange& range, const Tokenizer& tokenizer) {
  const std::vector<int64_t> ends = part_ends(range, tokenizer);
  const auto count = static_cast<int64_t>(ends.size());
  std::vector<T> tokens;
  std::vector<std::vector<int32_t>> parts;
  for (int64_t begin = 0; begin < count; begin += static_cast<int64_t>(parts.size())) {
    parts.assign(static_cast<size_t>(std::min<int64_t>(4 * get_thread_count(), count - begin)), {});
    parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t at = begin + i == 0 ? range.first : ends[static_cast<size_t>(begin + i - 1)];
        const int64_t end = ends[static_cast<size_t>(begin + i)];
        try {
          const std::string_view text = range.text->view(at, end - at);
          parts[static_cast<size_t>(i)] =
              begin + i == 0 ? tokenizer.encode(text) : tokenizer.encode_rest(text);
        } catch (const EncodingError& error) {
          throw EncodingError(
              error.problem, error.offset,
              range.text->location(at + static_cast<int64_t>(error.offset)) + ": " + error.what());
        }
      }
    });
    for (const auto& part : parts)
      std::transform(part.begin(), part.end(), std::back_inserter(tokens),
                     [](int32_t token) { return static_cast<T>(token); });
  }
  return std::make_unique<StoredTokens<T>>(std::move(tokens));
}

std::unique_ptr<const TokenSequence> make_tokens(const TextRange& range, const Tokenizer& tokenizer) {
  if (tokenizer.name() == kByteTokenizerName) return std::make_unique<MappedTokens>(range);
  if (tokenizer.vocabulary_size() <= kByteTokens) return make_stored_tokens<uint8_t>(range, tokenizer);
  if (tokenizer.vocabulary_size() <= 1 << 16) return make_stored_tokens<uint16_t>(range, tokenizer);
  return make_stored_tokens<int32_t>(range, tokenizer);
}

// Logs the number of unknown tokens, and whether the tokens have other bytes than the text.
void report_changes(const std::string& split, const TextRange& range, const TokenSequence& tokens,
                    const Tokenizer& tokenizer) {
  if (tokenizer.name() != kSentencePieceTokenizerName && tokenizer.name() != kBpeTokenizerName) return;
  constexpr int64_t kBlock = 1 << 16;
  std::vector<int64_t> block;
  std::string text, decoded;
  int64_t bytes = 0, unknown = 0;
  bool equal = true;
  for (int64_t at = 0; at < tokens.size(); at += kBlock) {
    block.resize(static_cast<size_t>(std::min(kBlock, tokens.size() - at)));
    tokens.read(at, static_cast<int64_t>(block.size()), block.data());
    decoded.clear();
    for (const int64_t token : block) decoded += tokenizer.get_token_text(token);
    unknown += count_unknown(tokenizer, block);
    const auto size = static_cast<int64_t>(decoded.size());
    equal = equal && bytes + size <= range.bytes();
    if (equal) {
      text.resize(decoded.size());
      range.text->read(range.first + bytes, size, reinterpret_cast<uint8_t*>(text.data()));
      equal = text == decoded;
    }
    bytes += size;
  }
  if (unknown > 0)
    log_warning("text ", split, ": ", unknown, " of ", tokens.size(), " tokens (",
                100 * static_cast<double>(unknown) / static_cast<double>(tokens.size()),
                " %) stand for unknown characters; their bits are counted, but not their bytes");
  if (!equal || bytes != range.bytes())
    log_info("text ", split, ": the tokens have ", bytes, " bytes, the text has ", range.bytes(),
             ", and they differ: the ",
             tokenizer.name() == kBpeTokenizerName
                 ? "tokenizer normalises the text"
                 : "SentencePiece model changes the text, for example its spaces",
             "; bits per byte refer to the tokens");
}

}  // namespace

std::shared_ptr<const Tokenizer> make_joint_tokenizer(const TextOptions& options,
                                                      const std::vector<std::string>& train_paths,
                                                      const std::vector<std::string>& other_paths,
                                                      uint64_t seed) {
  if (options.tokenizer_name == kByteTokenizerName) return make_byte_tokenizer();
  const auto read_model = [](const std::string& path) {
    const Bytes model = read_bytes(path, kMaxModelBytes);
    return std::string(view_as_text(model, model.size()));
  };
  if (options.tokenizer_name == kBpeTokenizerName && options.tokenizer_file.empty())
    throw ConfigError(name_option("TextOptions::tokenizer_file") +
                      ": the tokenizer \"bpe\" needs a tokenizer.json");
  if (options.tokenizer_name == kBpeTokenizerName)
    return make_bpe_tokenizer(read_model(options.tokenizer_file), options.tokenizer_file,
                              options.unknown_characters);
  if (options.tokenizer_name == kSentencePieceTokenizerName && !options.sentencepiece_model.empty())
    return make_sentencepiece_tokenizer(read_model(options.sentencepiece_model), options.sentencepiece_model,
                                        options.unknown_characters);
  const auto text = open_text(train_paths, options.tokenizer_name);
  if (options.tokenizer_name == kSentencePieceTokenizerName)
    return train_sentencepiece(*text, options.vocabulary, seed);
  if (other_paths.empty()) return make_character_tokenizer({text.get()});
  return make_character_tokenizer({text.get(), open_text(other_paths, options.tokenizer_name).get()});
}

std::shared_ptr<const Tokenizer> make_tokenizer(const TextOptions& options, uint64_t seed) {
  std::vector<std::string> other_paths;
  for (const std::string& path : {options.valid_path, options.test_path})
    if (!path.empty()) other_paths.push_back(path);
  return make_joint_tokenizer(options, {options.path}, other_paths, seed);
}

TextDataset::TextDataset(const TextOptions& options, const std::string& name, const std::string& split,
                         std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)),
      info_{.name = name,
            .split = split,
            .vocabulary = tokenizer_->vocabulary_size(),
            .length = options.sequence_length},
      uses_random_windows_(options.use_random_windows),
      uses_segments_(options.use_segments),
      eval_context_(split == "train" ? 0 : options.eval_context) {
  if (!uses_segments_) starts_.assign(tokenizer_->start_tokens().begin(), tokenizer_->start_tokens().end());
  const int64_t length = info_.length, predictions = count_predictions();
  if (predictions < 1)
    throw ConfigError(concat_text(name_option("TextOptions::sequence_length"), ": expected at least ",
                                  starts_.size(), ", the number of start tokens, got ", length));
  if (eval_context_ < 0 || eval_context_ >= predictions)
    throw ConfigError(concat_text(name_option("TextOptions::eval_context"), ": expected 0 to ",
                                  predictions - 1, ", less than the sequence length, got ", eval_context_));
  if (uses_segments_ && eval_context_ > 0)
    throw ConfigError(concat_text(name_option("TextOptions::eval_context"),
                                  ": segments have no common predictions, expected 0, got ", eval_context_));
  const TextRange range = select_split_range(options, split);
  const std::string& own_path = split == "valid" ? options.valid_path : options.test_path;
  const bool has_own_path = split != "train" && !own_path.empty();
  const std::string &path = has_own_path ? own_path : options.path,
                    problem = range.text->describe_encoding_problem();
  if (!problem.empty() && (split == "train" || has_own_path))
    log_warning(problem, "; the tokens are its bytes as they are");
  tokens_ = make_tokens(range, *tokenizer_);
  report_changes(split, range, *tokens_, *tokenizer_);
  const int64_t count = tokens_->size();
  if (count == 0)
    throw DataError(concat_text(path, ": the split \"", split, "\" is empty; change ",
                                name_option("TextOptions::valid_share"), " and ",
                                name_option("TextOptions::test_share"), ", or give the split a path"));
  if (count < count_text_tokens())
    throw DataError(concat_text(path, ": the split \"", split, "\" has ", count,
                                " tokens, expected at least ", name_option("TextOptions::sequence_length"),
                                " + 1 = ", length + 1,
                                "; choose shorter sequences, or give the split more text"));
  if (uses_random_windows_) {
    size_ = count - count_text_tokens() + 1;
    if (options.limit > 0) size_ = std::min(size_, (options.limit - 1) * predictions + 1);
  } else {
    const int64_t stride = predictions - eval_context_, rest = count - count_text_tokens();
    size_ = 1 + (rest + stride - 1) / stride;
    if (options.limit > 0) size_ = std::min(size_, options.limit);
  }
}

int64_t TextDataset::find_window_start(int64_t index) const {
  if (uses_random_windows_) return index;
  if (uses_segments_) return index * info_.length;
  return std::min(index * (count_predictions() - eval_context_), tokens_->size() - count_text_tokens());
}

Batch TextDataset::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t width = info_.length + 1, stride = count_predictions() - eval_context_;
  const auto start_count = static_cast<int64_t>(starts_.size());
  const int64_t given = std::max<int64_t>(start_count, 1);  // tokens before the first predicted token
  const bool narrow = info_.vocabulary <= kByteTokens;
  Batch batch;
  batch.tokens = Tensor::empty({count, width}, narrow ? DType::uint8 : DType::int64);
  const auto mask_predictions = [&](int64_t row, int64_t first, int64_t masked) {
    if (masked == 0) return;
    if (!batch.mask.defined()) {
      batch.mask = Tensor::empty({count, info_.length}, DType::uint8);
      std::fill_n(batch.mask.data<uint8_t>(), count * info_.length, uint8_t{1});
    }
    std::fill_n(batch.mask.data<uint8_t>() + row * info_.length + first, masked, uint8_t{0});
  };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[static_cast<size_t>(i)], start = find_window_start(index);
    const int64_t present = std::min(width, start_count + tokens_->size() - start);
    const auto read = [&]<class T>(T* row) {
      std::transform(starts_.begin(), starts_.end(), row,
                     [](int32_t token) { return static_cast<T>(token); });
      tokens_->read(start, present - start_count, row + start_count);
      std::fill(row + present, row + width, T{0});
    };
    if (narrow)
      read(batch.tokens.data<uint8_t>() + i * width);
    else
      read(batch.tokens.data<int64_t>() + i * width);
    // Number of predictions that are also in the previous window.
    const int64_t repeated = uses_random_windows_ || uses_segments_ || index == 0
                                 ? 0
                                 : (index - 1) * stride + count_predictions() - start;
    mask_predictions(i, 0, given - 1 + repeated);
    mask_predictions(i, present - 1, width - present);
  }
  return batch;
}

}  // namespace tapeformer
