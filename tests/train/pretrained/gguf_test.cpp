#include <doctest/doctest.h>

#include <cstring>

#include "core/base/float16.h"
#include "tests/train/config/config_fixture.h"
#include "train/checkpoint/safetensors.h"
#include "train/pretrained/pretrained_tokenizer.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const std::string kGolden = SOURCE_DIR "/tests/golden/gguf_types.gguf";

// A writer of GGUF files.
class GgufText {
 public:
  template <class T>
  GgufText& number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufText& text(const std::string& value) {
    number<uint64_t>(value.size());
    text_ += value;
    return *this;
  }
  GgufText& start(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    text_ += "GGUF";
    return number(version).number(tensors).number(keys);
  }
  GgufText& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                   uint64_t offset) {
    text(name).number(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) number(size);
    return number(type).number(offset);
  }
  GgufText& texts(const std::string& key, const std::vector<std::string>& values) {
    text(key).number<uint32_t>(9).number<uint32_t>(8).number<uint64_t>(values.size());
    for (const std::string& value : values) text(value);
    return *this;
  }
  GgufText& integers(const std::string& key, const std::vector<int32_t>& values) {
    text(key).number<uint32_t>(9).number<uint32_t>(5).number<uint64_t>(values.size());
    for (const int32_t value : values) number(value);
    return *this;
  }
  GgufText& value(const std::string& key, const std::string& content) {
    return text(key).number<uint32_t>(8).text(content);
  }
  GgufText& value(const std::string& key, uint32_t content) {
    return text(key).number<uint32_t>(4).number(content);
  }
  std::string padded(size_t data_bytes = 0) const {
    return text_ + std::string((32 - text_.size() % 32) % 32, '\0') + std::string(data_bytes, '\0');
  }

 private:
  std::string text_;
};

std::string opening_error(const std::string& contents) {
  const TempFolder folder;
  const std::string path = folder.write("x.gguf", contents);
  return message_of<CheckpointError>([&] {
    const GgufFile file(path);
    for (const auto& item : file.entries()) file.read(item.first);
  });
}

// A tokenizer of the bytes "a", "b" and " ", and a token "<e>" of the given type.
GgufText tokenizer_file(const std::string& pre, int32_t type = 3, uint32_t end = 4) {
  GgufText text;
  text.start(0, 6)
      .value("tokenizer.ggml.model", "gpt2")
      .value("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", {"a", "b", "\u0120", "ab", "<e>"})
      .integers("tokenizer.ggml.token_type", {1, 1, 1, 1, type})
      .texts("tokenizer.ggml.merges", {"a b"})
      .value("tokenizer.ggml.eos_token_id", end);
  return text;
}

}  // namespace

TEST_CASE("GGUF tensors of all types have the values of the package gguf") {
  const GgufFile file(kGolden);
  const SafetensorsFile expected(SOURCE_DIR "/tests/golden/gguf_types.safetensors");
  CHECK(file.entries().size() == 11);
  CHECK(file.entries().at("Q4_K.weight").type == "Q4_K");
  for (const auto& [name, entry] : file.entries()) {
    CAPTURE(name);
    CHECK(entry.shape == Shape({2, 512}));
    const Tensor tensor = file.read(name);
    CHECK(tensor.dtype() == DType::float32);
    CHECK(tensor.to_vector() == expected.read(name).to_vector());
  }
  CHECK(contains(message_of<CheckpointError>([&] { file.read("none"); }), "no tensor named none"));
}

TEST_CASE("the metadata of a GGUF file has the types of the file") {
  const GgufFile file(kGolden);
  CHECK(file.get<std::string>("general.architecture") == "llama");
  CHECK(file.get<int64_t>("test.integer") == 7);
  CHECK(file.get<double>("test.integer") == 7.0);
  CHECK(file.get<double>("test.number") == 0.5);
  CHECK(file.get<bool>("test.flag"));
  CHECK(file.get<std::string>("test.text") == "größer");
  CHECK(file.get<std::vector<std::string>>("test.texts") == std::vector<std::string>{"a", "", "ü"});
  CHECK(file.get<std::vector<int64_t>>("test.integers") == std::vector<int64_t>{1, -2, 3});
  CHECK(file.get<std::vector<double>>("test.numbers") == std::vector<double>{0.25, -1.5});
  CHECK(contains(message_of<CheckpointError>([&] { file.get<int64_t>("test.text"); }),
                 "test.text: expected an integer, got a string"));
  CHECK(contains(message_of<CheckpointError>([&] { file.get<bool>("none"); }), "the key none is missing"));
}

TEST_CASE("float16 numbers are widened exactly, also subnormal ones, infinities and NaN") {
  CHECK(widen_float16(0x3C00) == 1.0F);
  CHECK(widen_float16(0xC500) == -5.0F);
  CHECK(widen_float16(0x7BFF) == 65504.0F);
  CHECK(widen_float16(0x0001) == 0x1p-24F);
  CHECK(widen_float16(0x83FF) == -1023 * 0x1p-24F);
  CHECK(std::signbit(widen_float16(0x8000)));
  CHECK(std::isinf(widen_float16(0xFC00)));
  CHECK(std::isnan(widen_float16(0x7E01)));
}

TEST_CASE("a GGUF file that is cut off is an error, at every byte") {
  const std::string whole = read_file(kGolden);
  const size_t last_data_byte = whole.size() - 32;  // bytes of padding may follow
  for (size_t size = 0; size <= last_data_byte; size += size < 2000 ? 1 : 97)
    CHECK_MESSAGE(!opening_error(whole.substr(0, size)).empty(), size);
  CHECK(opening_error(whole).empty());
}

TEST_CASE("a GGUF header with invalid sizes, offsets, names or types is an error") {
  const auto tensor_error = [](const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset,
                               size_t bytes) {
    return opening_error(GgufText().start(1, 0).tensor("w", sizes, type, offset).padded(bytes));
  };
  CHECK(tensor_error({32, 2}, 0, 0, 256).empty());
  CHECK(contains(tensor_error({32, 2}, 0, 0, 255), "tensor \"w\" has 256 bytes from byte 0"));
  CHECK(contains(tensor_error({32, 2}, 0, UINT64_MAX - 31, 256), "expected 0"));
  CHECK(contains(tensor_error({32, 2}, 0, 8, 264), "begins at byte 8 of the data, expected 0"));
  CHECK(contains(tensor_error({32, 2}, 99, 0, 256), "has the type 99, expected F32"));
  CHECK(contains(tensor_error({33, 2}, 8, 0, 256), "must have a multiple of 32 values"));
  CHECK(contains(tensor_error({0}, 0, 0, 0), "has a dimension of the size 0"));
  CHECK(contains(tensor_error({}, 0, 0, 0), "has 0 dimensions"));
  CHECK(contains(tensor_error({uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0, 0), "overflows"));
  CHECK(contains(tensor_error({uint64_t{1} << 62, 4}, 1, 0, 0), "overflows"));
  CHECK(contains(
      opening_error(GgufText().start(2, 0).tensor("w", {32}, 0, 0).tensor("w", {32}, 0, 128).padded(256)),
      "has two tensors named \"w\""));
  CHECK(contains(
      opening_error(GgufText().start(2, 0).tensor("v", {32}, 0, 0).tensor("w", {32}, 0, 96).padded(256)),
      "begins at byte 96 of the data, expected 128"));
  CHECK(contains(tensor_error({32, 2}, 0, 0, 288), "has 32 bytes after the tensors, expected less than 32"));
  CHECK(contains(opening_error(GgufText().start(0, 0, 1).padded()), "expected the version 2 or 3"));
  CHECK(contains(opening_error(GgufText().start(UINT64_MAX, 0).padded()), "tensors, expected at most"));
  CHECK(contains(opening_error(GgufText().start(0, UINT64_MAX).padded()), "keys, expected at most"));
  const auto value_error = [](uint32_t type) {
    return opening_error(GgufText().start(0, 1).text("k").number(type).number(UINT64_MAX).padded(64));
  };
  CHECK(contains(value_error(8), "a string at byte"));
  CHECK(contains(value_error(10), "is larger than"));
  CHECK(contains(value_error(77), "unknown type 77"));
  const auto list_error = [](uint32_t type, uint64_t count) {
    return opening_error(
        GgufText().start(0, 1).text("k").number<uint32_t>(9).number(type).number(count).padded(64));
  };
  CHECK(contains(list_error(8, UINT64_MAX), "a list has"));
  CHECK(contains(list_error(9, 1), "has a list of the type 9"));
  CHECK(contains(
      opening_error(GgufText().start(0, 1).text("k\xFF").number<uint32_t>(4).number<uint32_t>(1).padded(64)),
      "not valid UTF-8"));
  CHECK(contains(opening_error(GgufText().start(0, 1).value("general.alignment", 24U).padded(64)),
                 "expected a power of two"));
  CHECK(contains(opening_error("GGML"), "no valid GGUF file: expected the first bytes"));
}

TEST_CASE("a GGUF header with another number of tensors or another alignment than the data is an error") {
  std::string text = read_file(kGolden);
  --text[8];  // the number of tensors
  CHECK(contains(opening_error(text), "bytes after the tensors"));
  // The data of 256 bytes begin at a multiple of 32. With the alignment 8, they would begin earlier after 24
  // of 32 lengths of the header.
  int errors = 0;
  for (size_t length = 1; length <= 32; ++length) {
    const std::string error = opening_error(GgufText()
                                                .start(1, 1)
                                                .value("general.alignment", 8U)
                                                .tensor(std::string(length, 'w'), {32, 2}, 0, 0)
                                                .padded(256));
    errors += error.empty() ? 0 : 1;
    if (!error.empty()) CHECK(contains(error, "bytes after the tensors, expected less than 8"));
  }
  CHECK(errors == 24);
}

TEST_CASE("the tokenizer of a GGUF file is read, and other kinds are refused by name") {
  const TempFolder folder;
  const auto read = [&](const GgufText& text) {
    return read_gguf_tokenizer(GgufFile(folder.write("t.gguf", text.padded())));
  };
  const BpeModel model = read(tokenizer_file("smollm"));
  const auto tokenizer = make_bpe_tokenizer(model, "t");
  CHECK(tokenizer->encode("ab a<e>") == std::vector<int32_t>{3, 2, 0, 4});
  CHECK(model.stop_tokens == std::vector<int32_t>{4});
  CHECK(read(tokenizer_file("qwen2")).normalizes_to_nfc);
  CHECK(read(tokenizer_file("llama-bpe")).ignores_merges);
  CHECK(contains(message_of<CheckpointError>([&] { read(tokenizer_file("deepseek-llm")); }),
                 "got \"deepseek-llm\""));
  CHECK(contains(message_of<CheckpointError>([&] { read(tokenizer_file("smollm", 9)); }), "unknown type 9"));
  CHECK(contains(message_of<CheckpointError>([&] { read(tokenizer_file("smollm", 3, 5)); }),
                 "eos_token_id: is 5, and the vocabulary has 5"));
  CHECK(contains(message_of<CheckpointError>(
                     [&] { read(GgufText().start(0, 1).value("tokenizer.ggml.model", "llama")); }),
                 "expected byte-level BPE, \"gpt2\", got \"llama\""));
  CHECK(contains(message_of<CheckpointError>([&] { read(GgufText().start(0, 0)); }),
                 "the key tokenizer.ggml.model is missing"));
  // A merge of an unused token, and two tokens with one text.
  const auto merge_error = [&](const std::vector<std::string>& tokens, const std::vector<int32_t>& types) {
    GgufText text;
    text.start(0, 5)
        .value("tokenizer.ggml.model", "gpt2")
        .value("tokenizer.ggml.pre", "smollm")
        .texts("tokenizer.ggml.tokens", tokens)
        .integers("tokenizer.ggml.token_type", types)
        .texts("tokenizer.ggml.merges", {"a b"});
    return message_of<CheckpointError>([&] { read(text); });
  };
  CHECK(merge_error({"a", "b", "ab"}, {1, 1, 1}).empty());
  CHECK(contains(merge_error({"a", "b", "ab"}, {1, 5, 1}), "merge 0: \"b\" is not in the vocabulary"));
  CHECK(contains(merge_error({"a", "b", "ab", "a"}, {1, 1, 1, 1}), "the tokens 0 and 3 are both \"a\""));
  CHECK(merge_error({"a", "b", "ab", "a"}, {1, 1, 1, 5}).empty());
  BpeModel fitted = model;
  fit_bpe_vocabulary(fitted, 64, "m");
  CHECK(fitted.pieces.size() == 64);
  CHECK(contains(message_of<CheckpointError>([&] { fit_bpe_vocabulary(fitted, 63, "m"); }),
                 "the tokenizer has 64 tokens, and the embedding of the model has 63 rows"));
}
