#include <doctest/doctest.h>

#include <filesystem>

#include "tests/train/config/config_fixture.h"
#include "train/checkpoint/safetensors.h"
#include "train/pretrained/pretrained_tokenizer.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

namespace fs = std::filesystem;

std::string opening_error(const TempFolder& folder) {
  return message_of<CheckpointError>([&] { HuggingFaceFolder(folder.path("")); });
}

// A folder with the tensors "a" in one file and "b" in another.
struct ShardedFolder : TempFolder {
  ShardedFolder() {
    write("config.json", R"({"model_type":"llama","eos_token_id":[421,420]})");
    write_safetensors(path("one.safetensors"), {{"a", Tensor::from_vector<float>({1, 2}, {2})}});
    write_safetensors(path("two.safetensors"),
                      {{"b", Tensor::from_vector<float>({3, -4}, {1, 2}).to(DType::bfloat16)}});
    write_index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  }
  void write_index(const std::string& map) const {
    write("model.safetensors.index.json", R"({"metadata":{"total_size":12},"weight_map":)" + map + "}");
  }
};

}  // namespace

TEST_CASE("a folder of Hugging Face with several files gives all tensors as float32, and its config") {
  const ShardedFolder folder;
  const HuggingFaceFolder model(folder.path(""));
  CHECK(model.entries().size() == 2);
  CHECK(model.entries().at("b").type == "BF16");
  CHECK(model.entries().at("b").shape == Shape({1, 2}));
  CHECK(model.read("b").dtype() == DType::float32);
  CHECK(model.read("b").to_vector() == std::vector<double>{3, -4});
  CHECK(model.read("a").to_vector() == std::vector<double>{1, 2});
  CHECK(model.read_json().get_string("model_type") == "llama");
  CHECK(contains(message_of<CheckpointError>([&] { model.read("c"); }), "no tensor named c"));
}

TEST_CASE("float16 tensors of safetensors files are read as float32, and BOOL as uint8") {
  const TempFolder folder;
  const std::string json =
      R"({"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"m":{"dtype":"BOOL","shape":[2],"data_offsets":[4,6]}})";
  const uint64_t length = json.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  text += json + std::string("\x00\x3C\x01\x80\x01\x00", 6);
  const SafetensorsFile file(folder.write("x.safetensors", text));
  CHECK(file.read("h").dtype() == DType::float32);
  CHECK(file.read("h").to_vector() == std::vector<double>{1, -0x1p-24});
  CHECK(file.read("m").dtype() == DType::uint8);
  CHECK(file.read("m").to_vector() == std::vector<double>{1, 0});
  const Tensor target = Tensor::zeros({2}), mask = Tensor::zeros({2}, DType::uint8);
  file.load_into({{"h", target}, {"m", mask}});
  CHECK(target.to_vector() == std::vector<double>{1, -0x1p-24});
}

TEST_CASE("an index that names files outside of the folder, or other tensors, is an error") {
  const ShardedFolder folder;
  for (const std::string name : {"../one.safetensors", "/etc/passwd", "..", ".", "", "sub/one.safetensors"}) {
    folder.write_index("{\"a\":\"" + name + "\"}");
    CHECK(contains(opening_error(folder), "expected the name of a file in the same folder"));
  }
  folder.write_index(R"({"a":"one.safetensors","c":"two.safetensors"})");
  CHECK(contains(opening_error(folder), "has no tensor \"c\""));
  folder.write_index(R"({"a":"one.safetensors"})");
  CHECK(opening_error(folder).empty());
  folder.write_index(R"({"a":"two.safetensors"})");
  CHECK(contains(opening_error(folder), "has no tensor \"a\""));
  folder.write_index(R"({"a":"none.safetensors"})");
  CHECK(contains(opening_error(folder), "none.safetensors"));
  folder.write_index(R"({"a":3})");
  CHECK(contains(opening_error(folder), "expected the file of \"a\""));
  folder.write_index("{}");
  CHECK(contains(opening_error(folder), "lists no tensors"));
  folder.write("model.safetensors.index.json", "{");
  CHECK(contains(opening_error(folder), "is not valid JSON"));
  write_safetensors(folder.path("two.safetensors"), {{"a", Tensor::zeros({2})}, {"b", Tensor::zeros({2})}});
  folder.write_index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  CHECK(contains(opening_error(folder), "the tensor \"a\" is not in model.safetensors.index.json"));
}

TEST_CASE("a folder that lacks a part of a model of Hugging Face is an error with the part") {
  const TempFolder folder;
  CHECK(contains(opening_error(folder), "has no config.json"));
  folder.write("config.json", "{}");
  CHECK(contains(opening_error(folder), "has no model.safetensors and no model.safetensors.index.json"));
  folder.write("pytorch_model.bin", "");
  CHECK(contains(opening_error(folder), "save the model as safetensors"));
  write_safetensors(folder.path("model.safetensors"), {{"a", Tensor::zeros({2})}});
  const HuggingFaceFolder model(folder.path(""));
  CHECK(contains(message_of<CheckpointError>([&] { read_huggingface_tokenizer(model); }),
                 "has no tokenizer.json"));
  CHECK(contains(message_of<CheckpointError>([&] { HuggingFaceFolder(folder.path("config.json")); }),
                 "is not a folder"));
}

TEST_CASE("the stop tokens of a folder of Hugging Face are those of its config files") {
  const ShardedFolder folder;
  fs::copy_file(SOURCE_DIR "/tests/golden/bpe_tokenizer.json", folder.path("tokenizer.json"));
  const HuggingFaceFolder model(folder.path(""));
  const auto stops = [&] { return read_huggingface_tokenizer(model).stop_tokens; };
  CHECK(stops() == std::vector<int32_t>{421, 420});
  folder.write("generation_config.json", R"({"eos_token_id":422})");
  CHECK(stops() == std::vector<int32_t>{422});
  folder.write("generation_config.json", R"({"eos_token_id":427})");
  CHECK(
      contains(message_of<CheckpointError>(stops), "a stop token is 427, and the vocabulary has 427 tokens"));
  folder.write("generation_config.json", R"({"eos_token_id":"x"})");
  CHECK(contains(message_of<CheckpointError>(stops), "eos_token_id: expected an integer"));
  folder.write("tokenizer.json", "{}");
  CHECK(
      contains(message_of<CheckpointError>(stops), "tokenizer.json: the entry \"pre_tokenizer\" is missing"));
}
