// The tokenizer "sentencepiece" (Kudo and Richardson 2018), implemented with the SentencePiece library. CMake
// defines TAPEFORMER_SENTENCEPIECE if the library is present.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <regex>
#include <thread>

#include "core/options/option_names.h"
#include "core/system/log.h"
#include "core/system/utf8.h"
#include "data/files/text_lines.h"
#include "data/text/piece_model.h"
#include "data/text/tokenizer.h"

#ifdef TAPEFORMER_SENTENCEPIECE
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#endif

namespace tapeformer {

#ifdef TAPEFORMER_SENTENCEPIECE

namespace {

// Maximum size of a training sentence. Longer lines are divided, because the trainer ignores longer
// sentences.
constexpr size_t kMaxSentenceBytes = 4096;
// Maximum number of training sentences. If a text has more lines, the trainer samples some of them.
constexpr int64_t kTrainingSentences = 500'000;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which replaces a space in pieces

// Maximum number of bytes per call of the SentencePiece encoder.
constexpr size_t kMaxEncodedBytes = 1 << 16;

// Returns the size in bytes of the first line of a text, including the line end. If the line has more than
// `max_bytes` bytes, returns the size of the complete characters that fit into `max_bytes` bytes.
size_t count_line_bytes(std::string_view text, size_t max_bytes) {
  const size_t end = text.substr(0, max_bytes).find('\n');
  if (end != std::string_view::npos) return end + 1;
  if (text.size() <= max_bytes) return text.size();
  size_t size = max_bytes;
  while (size > 1 && (static_cast<uint8_t>(text[size]) & 0xC0) == 0x80) --size;
  return size;
}

// Returns ": " and the message of a status, without the source file, line and condition that SentencePiece
// writes before it. Returns "" if nothing else is left. A message can contain a piece of any length.
std::string describe_status(const sentencepiece::util::Status& status) {
  constexpr size_t kMaxShown = 300;
  static const std::regex kSource("[^ ]*\\.(cc|h)\\([0-9]+\\) \\[.*?\\]( |$)");
  std::string text(std::string_view(status.error_message()).substr(0, kMaxShown));
  text = std::regex_replace(text, kSource, "");
  text.erase(0, text.find_first_not_of(" \n"));
  text.erase(text.find_last_not_of(" \n") + 1);
  return text.empty() ? "" : ": " + text;
}

constexpr const char *kLogLevelName = "minloglevel", *kFatalOnly = "2";

// Loads a model. The library has no function that sets the level of its log, but the trainer sets the level
// before it refuses to train without a text.
void load_model(sentencepiece::SentencePieceProcessor& processor, const std::string& model,
                const std::string& source) {
  [[maybe_unused]] static const auto refused =
      sentencepiece::SentencePieceTrainer::Train({{kLogLevelName, kFatalOnly}});
  const auto status = processor.LoadFromSerializedProto(model);
  if (model.empty() || !status.ok())
    throw DataError(source + ": is not a SentencePiece model or is damaged" + describe_status(status));
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& model, const std::string& source, UnknownCharacters unknown)
      : model_(model), unknown_(unknown) {
    const PieceModel parsed = parse_piece_model(model, source);
    settings_ = parsed.settings;
    load_model(processor_, settings_.prefixes_texts ? remove_added_space(parsed.model) : parsed.model,
               source);
    for (int token = 0; token < processor_.GetPieceSize(); ++token) texts_.push_back(piece_text(token));
    texts_.resize(std::max(texts_.size(), static_cast<size_t>(settings_.vocabulary_size)));
    for (const auto* tokens : {&settings_.start_tokens, &settings_.stop_tokens})
      for (const int32_t token : *tokens)
        if (static_cast<size_t>(token) >= texts_.size())
          throw DataError(concat_text(source, ": the special token ", token,
                                      " is not below the number of tokens, ", texts_.size()));
    for (const std::string& text : texts_) joins_line_ends_ |= text.find("\n\n") != std::string::npos;
    // Other programs read U+2581 as a space.
    if (settings_.vocabulary_size == 0 && changes_no_spaces())
      for (const char* piece : {"<0xE2>", "<0x96>", "<0x81>"})
        mark_tokens_.push_back(processor_.PieceToId(piece));
  }
  std::string name() const override { return kSentencePieceTokenizerName; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(texts_.size()); }

  std::vector<int32_t> encode(std::string_view text) const override {
    if (!settings_.prefixes_texts || text.empty()) return encode_rest(text);
    const size_t size = count_line(text);
    std::vector<int32_t> all;
    try {
      all = encode_rest(" " + std::string(text.substr(0, size)));
    } catch (const EncodingError& error) {
      throw EncodingError(error.problem, error.offset > 0 ? error.offset - 1 : 0, error.what());
    }
    try {
      const std::vector<int32_t> rest = encode_rest(text.substr(size));
      all.insert(all.end(), rest.begin(), rest.end());
    } catch (const EncodingError& error) {
      throw EncodingError(error.problem, error.offset + size, error.what());
    }
    return all;
  }
  std::vector<int32_t> encode_rest(std::string_view text) const override {
    if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
      throw EncodingError(EncodingProblem::not_encodable, bad,
                          "is not valid UTF-8; the tokenizer \"bytes\" takes any bytes");
    std::vector<int32_t> all;
    // Encodes line by line, because the encoding time can grow faster than linearly with the length of a
    // text.
    for (size_t at = 0; at < text.size();) {
      const size_t size = count_line(text.substr(at));
      append_line(text, at, at + size, all);
      at += size;
    }
    return all;
  }
  std::string_view get_token_text(int64_t token) const override {
    return texts_.at(static_cast<size_t>(token));
  }
  int64_t unknown_token() const override { return processor_.unk_id(); }
  std::span<const int32_t> start_tokens() const override { return settings_.start_tokens; }
  std::span<const int32_t> stop_tokens() const override { return settings_.stop_tokens; }
  std::string serialize() const override { return model_; }

 private:
  // Returns the size of the first line. If tokens can contain several line ends, adjacent ones belong to it.
  size_t count_line(std::string_view text) const {
    size_t size = count_line_bytes(text, kMaxEncodedBytes);
    while (joins_line_ends_ && size < std::min(text.size(), kMaxEncodedBytes) && text[size] == '\n') ++size;
    return size;
  }
  // Appends the tokens of text[at, end). The encoder reads U+2581 as a space. If the model can encode this
  // character as bytes, its bytes are appended instead.
  void append_line(std::string_view text, size_t at, size_t end, std::vector<int32_t>& all) const {
    while (at < end) {
      const size_t mark = mark_tokens_.empty() ? end : std::min(text.find(kSpaceMark, at), end);
      if (mark > at) append_part(text, at, mark, all);
      if (mark < end) all.insert(all.end(), mark_tokens_.begin(), mark_tokens_.end());
      at = mark < end ? mark + kSpaceMark.size() : end;
    }
  }

  void append_part(std::string_view text, size_t at, size_t end, std::vector<int32_t>& all) const {
    const std::string_view part = text.substr(at, end - at);
    std::vector<int> tokens;
    const auto status = processor_.Encode({part.data(), part.size()}, &tokens);
    if (!status.ok())
      throw EncodingError(EncodingProblem::not_encodable, at,
                          "SentencePiece cannot encode it" + describe_status(status));
    if (unknown_ == UnknownCharacters::refuse &&
        std::find(tokens.begin(), tokens.end(), processor_.unk_id()) != tokens.end())
      refuse_unknown_character(part, at);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }

  [[noreturn]] void refuse_unknown_character(std::string_view part, size_t at) const {
    const auto encoded = processor_.EncodeAsImmutableProto({part.data(), part.size()});
    size_t offset = 0;
    for (size_t i = 0; i < encoded.pieces_size(); ++i)
      if (encoded.pieces(static_cast<int>(i)).id() == static_cast<uint32_t>(processor_.unk_id())) {
        offset = encoded.pieces(static_cast<int>(i)).begin();
        break;
      }
    const std::string_view rest = part.substr(std::min(offset, part.size() - 1));
    throw EncodingError(
        EncodingProblem::unknown_character, at + offset,
        "the character " + describe_character(rest.substr(0, decode_first_utf8_character(rest).bytes)) +
            " is not in the vocabulary of the SentencePiece model; train the model with the option "
            "byte_fallback of spm_train");
  }

  // Returns whether the model has tokens for all bytes and neither adds nor removes spaces.
  bool changes_no_spaces() const {
    constexpr char kText[] = " a ";
    std::vector<int> tokens;
    if (!processor_.Encode(kText, &tokens).ok()) return false;
    std::string decoded;
    for (const int token : tokens) decoded += texts_[static_cast<size_t>(token)];
    return processor_.IsByte(processor_.PieceToId("<0xE2>")) && decoded == kText;
  }

  std::string piece_text(int token) const {
    if (processor_.IsControl(token) || processor_.IsUnknown(token)) return "";
    std::string piece = processor_.IdToPiece(token);
    if (processor_.IsByte(token))
      return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};  // "<0x0A>"
    for (size_t at = 0; (at = piece.find(kSpaceMark, at)) != std::string::npos; ++at)
      piece.replace(at, kSpaceMark.size(), " ");
    return piece;
  }

  std::string model_;
  PieceModelSettings settings_;
  UnknownCharacters unknown_;
  bool joins_line_ends_ = false;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> texts_;
  std::vector<int32_t> mark_tokens_;  // tokens of the bytes of kSpaceMark; empty: it is encoded as a space
};

// The lines of a text without their line ends. Long lines are divided; see kMaxSentenceBytes.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const TextSource& text) : text_(text) { read(); }
  bool done() const override { return done_; }
  void Next() override { read(); }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void read() {
    done_ = at_ >= text_.size();
    if (done_) return;
    const std::string_view text = text_.view(at_, kMaxSentenceBytes + 1);
    const size_t size = count_line_bytes(text, kMaxSentenceBytes);
    value_ = text.substr(0, size);
    if (const size_t bad = find_invalid_utf8(value_); bad != std::string::npos)
      throw DataError(text_.location(at_ + static_cast<int64_t>(bad)) +
                      " is not valid UTF-8; the tokenizer \"bytes\" takes any bytes");
    if (value_.ends_with('\n')) value_.pop_back();
    // The trainer does not accept NUL bytes, so NUL bytes are replaced by spaces.
    std::replace(value_.begin(), value_.end(), '\0', ' ');
    at_ += static_cast<int64_t>(size);
  }

  const TextSource& text_;
  int64_t at_ = 0;
  bool done_ = false;
  std::string value_;
};

// A log of a long call. Logs the elapsed time in each interval until the object is destroyed.
class ElapsedTimeLog {
 public:
  ElapsedTimeLog(const std::string& task, std::chrono::milliseconds interval)
      : thread_([task, interval](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any changed;
          std::unique_lock lock(mutex);
          for (auto elapsed = interval;
               !changed.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); });
               elapsed += interval)
            log_info(task, ": ", std::chrono::duration_cast<std::chrono::seconds>(elapsed).count(), " s");
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(const std::string& model,
                                                              const std::string& source,
                                                              UnknownCharacters unknown) {
  return std::make_shared<SentencePieceTokenizer>(model, source, unknown);
}

PieceTokens find_piece_tokens(const std::string& model, const std::string& source) {
  sentencepiece::SentencePieceProcessor processor;
  load_model(processor, model, source);
  return {processor.GetPieceSize(), processor.bos_id(), processor.eos_id()};
}

std::shared_ptr<const Tokenizer> train_sentencepiece(const TextSource& text, int64_t vocabulary,
                                                     uint64_t seed, std::chrono::milliseconds log_interval) {
  log_info("training a SentencePiece model with ", vocabulary, " tokens on a text of ", text.size(),
           " bytes");
  const ElapsedTimeLog log("training the SentencePiece model", log_interval);
  Sentences sentences(text);
  std::string model;
  sentencepiece::SetRandomGeneratorSeed(static_cast<unsigned>(seed));
  const auto status =
      sentencepiece::SentencePieceTrainer::Train({{"vocab_size", std::to_string(vocabulary)},
                                                  {"model_type", "unigram"},
                                                  {"byte_fallback", "true"},
                                                  {"normalization_rule_name", "identity"},
                                                  {"remove_extra_whitespaces", "false"},
                                                  {"add_dummy_prefix", "false"},
                                                  {"character_coverage", "0.9995"},
                                                  {"max_sentence_length", std::to_string(kMaxSentenceBytes)},
                                                  {"input_sentence_size", std::to_string(kTrainingSentences)},
                                                  {"shuffle_input_sentence", "true"},
                                                  {"num_threads", "1"},
                                                  {kLogLevelName, kFatalOnly}},
                                                 &sentences, &model);
  if (!status.ok())
    throw ConfigError(concat_text("SentencePiece cannot train a vocabulary of ", vocabulary,
                                  " tokens; choose another ", name_option("TextOptions::vocabulary"),
                                  describe_status(status)));
  return make_sentencepiece_tokenizer(model, "the trained SentencePiece model");
}

#else

namespace {

[[noreturn]] void fail_without_library() {
  throw ConfigError(
      "the tokenizer \"sentencepiece\" needs the SentencePiece library, and this build has none; install "
      "libsentencepiece-dev and build again, or use \"bytes\" or \"characters\"");
}

}  // namespace

std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(const std::string&, const std::string&,
                                                              UnknownCharacters) {
  fail_without_library();
}

PieceTokens find_piece_tokens(const std::string&, const std::string&) {
  fail_without_library();
}

std::shared_ptr<const Tokenizer> train_sentencepiece(const TextSource&, int64_t, uint64_t,
                                                     std::chrono::milliseconds) {
  fail_without_library();
}

#endif

}  // namespace tapeformer
