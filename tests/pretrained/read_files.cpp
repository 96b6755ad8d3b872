// A program that reads the files of pretrained models, for tests that compare with other programs and for
// fuzzing. Errors end with the exit status 3. A MODEL is a GGUF file or a folder of Hugging Face.
//
//   read_files tokens TOKENIZER TEXTS    one line of tokens for each text; a text in TEXTS ends with a NUL
//   byte.
//                                        The line begins with "=" if the decoded tokens equal the text.
//                                        TOKENIZER is a tokenizer.json or a SentencePiece file *.model
//   read_files speed TOKENIZER TEXT      MB/s of the encoding of a text, by the processor time
//   read_files weights MODEL [FILE]      reads all tensors, and writes them to a safetensors file
//   read_files tokenizer MODEL [FILE]    reads the tokenizer, and writes it to a tokenizer.json
//   read_files logits RUN TOKENS FILE    writes the logits for the tensor "tokens" of a safetensors file
//   read_files steps RUN TOKENS FILE     the same, in the form that reads one token at a time
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/system/printable.h"
#include "data/text/bpe/tokenizer_json.h"
#include "data/text/tokenizer.h"
#include "models/decoder.h"
#include "ops/view.h"
#include "train/checkpoint/safetensors.h"
#include "train/pretrained/pretrained_tokenizer.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/registry/load_task.h"

namespace {

using namespace tapeformer;

void print_tokens(const Tokenizer& tokenizer, std::string_view texts) {
  while (!texts.empty()) {
    const std::string_view text = texts.substr(0, texts.find('\0'));
    try {
      const std::vector<int32_t> tokens = tokenizer.encode(text);
      const bool is_equal = tokenizer.decode(std::vector<int64_t>(tokens.begin(), tokens.end())) == text;
      std::cout << (is_equal ? "=" : "~");
      for (const int32_t token : tokens) std::cout << ' ' << token;
      std::cout << '\n';
    } catch (const EncodingError& error) {
      std::cout << "! " << escape_line(error.what()) << '\n';
    }
    texts.remove_prefix(std::min(text.size() + 1, texts.size()));
  }
}

void print_speed(const Tokenizer& tokenizer, const std::string& text) {
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    const size_t count = tokenizer.encode(text).size();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    std::cout << count << " tokens, " << static_cast<double>(text.size()) / 1e6 / seconds << " MB/s\n";
  }
}

std::unique_ptr<const WeightSource> open_model(const std::string& path) {
  if (std::filesystem::is_directory(path)) return std::make_unique<const HuggingFaceFolder>(path);
  return std::make_unique<const GgufFile>(path);
}

void read_weights(const std::string& path, const std::string& output) {
  const auto source = open_model(path);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : source->entries()) {
    const Tensor tensor = source->read(name);
    std::cout << escape_line(name) << ' ' << entry.type << ' ' << entry.shape << '\n';
    if (!output.empty()) tensors[name] = tensor;
  }
  if (!output.empty()) write_safetensors(output, tensors);
}

void read_tokenizer(const std::string& path, const std::string& output) {
  const auto source = open_model(path);
  const auto* const gguf = dynamic_cast<const GgufFile*>(source.get());
  const BpeModel model = gguf ? read_gguf_tokenizer(*gguf)
                              : read_huggingface_tokenizer(dynamic_cast<const HuggingFaceFolder&>(*source));
  std::cout << model.pieces.size() << " tokens, start";
  for (const int32_t token : model.start_tokens) std::cout << ' ' << token;
  std::cout << ", stop";
  for (const int32_t token : model.stop_tokens) std::cout << ' ' << token;
  std::cout << '\n';
  if (!output.empty()) replace_file(output, write_tokenizer_json(model, false));
}

void write_logits(const std::string& run, const std::string& tokens, const std::string& output) {
  const LoadedTask loaded = load_task({.path = run, .purpose = ConfigPurpose::generation});
  const NoGradScope no_grad;
  write_safetensors(output, {{"logits", loaded.as<AutoregressiveTask>().model().forward(
                                            SafetensorsFile(tokens).read("tokens"), {})}});
}

void write_step_logits(const std::string& run, const std::string& tokens_path, const std::string& output) {
  const LoadedTask loaded = load_task({.path = run, .purpose = ConfigPurpose::generation});
  const NoGradScope no_grad;
  const Tensor tokens = SafetensorsFile(tokens_path).read("tokens");
  const int64_t batch = tokens.size(0), length = tokens.size(1);
  Decoder decoder(loaded.as<AutoregressiveTask>().model(), batch, length);
  std::vector<Tensor> steps;
  for (int64_t t = 0; t < length; ++t)
    steps.push_back(decoder.step(slice(tokens, 1, t, t + 1).clone().view({batch})).clone());
  write_safetensors(output, {{"logits", stack(steps, 1)}});
}

void run(const std::vector<std::string>& words) {
  if (words.size() < 2 || words.size() > 4) throw ConfigError("expected a command and one to three files");
  const std::string second = words.size() >= 3 ? words[2] : "";
  if (words[0] == "logits" && words.size() == 4) return write_logits(words[1], second, words[3]);
  if (words[0] == "steps" && words.size() == 4) return write_step_logits(words[1], second, words[3]);
  if (words[0] == "weights") return read_weights(words[1], second);
  if (words[0] == "tokenizer") return read_tokenizer(words[1], second);
  const std::string text = read_file(words[1]);
  const auto tokenizer = words[1].ends_with(".model") ? make_sentencepiece_tokenizer(text, words[1])
                                                      : make_bpe_tokenizer(text, words[1]);
  if (words[0] == "tokens") return print_tokens(*tokenizer, read_file(second));
  if (words[0] == "speed") return print_speed(*tokenizer, read_file(second));
  throw ConfigError("unknown command " + words[0]);
}

}  // namespace

int main(int count, char** words) {
  try {
    run({words + 1, words + count});
    return 0;
  } catch (const tapeformer::CheckpointError& error) {
    std::cerr << tapeformer::escape_message(error.what()) << '\n';
    return 3;
  } catch (const tapeformer::DataError& error) {
    std::cerr << tapeformer::escape_message(error.what()) << '\n';
    return 3;
  } catch (const std::exception& error) {
    std::cerr << tapeformer::escape_message(error.what()) << '\n';
    return 1;
  }
}
