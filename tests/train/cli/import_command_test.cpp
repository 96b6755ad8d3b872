// The commands "import" and "export" on the models of transformers.safetensors.
#include <doctest/doctest.h>

#include "tests/train/cli/program.h"
#include "tests/train/pretrained/family_folder.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A folder with an imported model. Its tokens are letters.
struct ImportedRun {
  explicit ImportedRun(const std::string& family = "llama") : source(family) {
    const ProgramResult result = run_program({"import", source.write(), run()});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    std::string text;
    for (int i = 0; i < 600; ++i) text += static_cast<char>('a' + (i * i) % 11);
    write_file(dir / "text.txt", text);
  }
  std::string run() const { return (dir / "run").string(); }
  std::string path(const std::string& name) const { return (dir / name).string(); }

  TempDir dir;
  FamilyFolder source;
};

std::map<std::string, std::vector<double>> read_weights(const std::string& run) {
  const SafetensorsFile file(run + "/checkpoints/latest/model.safetensors");
  std::map<std::string, std::vector<double>> weights;
  for (const auto& [name, entry] : file.entries()) weights[name] = file.read(name).to_vector();
  return weights;
}

// Returns the number of entries of a folder, with those whose names begin with a period.
int64_t count_entries(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

}  // namespace

TEST_CASE("eval, score, generate and trainings take an imported run") {
  const ImportedRun imported;
  CHECK(fs::exists(imported.path("run/tokenizer.json")));
  const std::vector<std::string> text{"--set", "data.path=" + imported.path("text.txt"), "--set",
                                      "data.sequence_length=10"};
  const auto with_text = [&](std::vector<std::string> words) {
    words.insert(words.end(), text.begin(), text.end());
    return run_program(words);
  };
  const ProgramResult evaluated =
      with_text({"eval", imported.run(), "--json", "--set", "data.test_share=0.5"});
  CAPTURE(evaluated.err);
  REQUIRE(evaluated.code == 0);
  CHECK(Json::parse(evaluated.out)["bits_per_byte"] > 1);
  const ProgramResult drawn =
      run_program({"generate", imported.run(), "--prompt", "abc", "--length", "30", "--json"});
  REQUIRE(drawn.code == 0);
  // The last two rows of the embedding have no text.
  CHECK(Json::parse(drawn.out)["texts"][0].get<std::string>().size() == 30);
  CHECK(run_program({"score", imported.run(), imported.path("text.txt")}).code == 0);
  const ProgramResult tuned =
      with_text({"train", imported.path("run/config.toml"), "--run-dir", imported.path("tuned"), "--set",
                 "model.init=" + imported.run(), "--set", "train.steps=2", "--set", "optimizer.lr=0.01"});
  CAPTURE(tuned.err);
  CHECK(tuned.code == 0);
  CHECK(contains(tuned.err, "the tokens are those of model.init: bpe, 13 tokens"));
  CHECK(read_weights(imported.path("tuned")) != read_weights(imported.run()));
  const ProgramResult linearized =
      with_text({"linearize", imported.run(), "--attention", "window-linear", "--run-dir",
                 imported.path("linear"), "--transfer-steps", "1", "--steps", "1", "--json", "--set",
                 "data.test_share=0.5", "--set", "data.eval_limit=2", "--set", "attention.window=4"});
  CAPTURE(linearized.err);
  REQUIRE(linearized.code == 0);
  CHECK(!contains(linearized.err, "another function"));
  CHECK(Json::parse(linearized.out)["models"][0]["bits_per_byte"] > 1);
  const ProgramResult unused = with_text({"eval", imported.run(), "--set", "data.eval_limit=2"});
  CHECK(unused.code == 2);
  CHECK(contains(unused.err, "data.eval_limit"));
  const ProgramResult without_text = run_program({"eval", imported.run()});
  CHECK(without_text.code == 3);
  CHECK(contains(without_text.err, "data.path: data set \"text\" needs a file"));
}

TEST_CASE("an exported model has the same weights after another import, in both formats") {
  for (const std::string& family : list_golden_families()) {
    CAPTURE(family);
    const ImportedRun imported(family);
    for (const std::string output : {"out", "out.gguf"}) {
      const ProgramResult exported = run_program({"export", imported.run(), imported.path(output), "--json"});
      CAPTURE(exported.err);
      if (family == "gemma" && output == "out.gguf") {
        CHECK(exported.code == 2);
        CHECK(contains(exported.err, "the family gemma has no GGUF files"));
        CHECK_FALSE(fs::exists(imported.path(output)));
        continue;
      }
      REQUIRE(exported.code == 0);
      CHECK(Json::parse(exported.out)["family"] == family);
      const ProgramResult again =
          run_program({"import", imported.path(output), imported.path(output + "-run")});
      CAPTURE(again.err);
      REQUIRE(again.code == 0);
      CHECK(read_weights(imported.path(output + "-run")) == read_weights(imported.run()));
      const auto without_name = [&](const std::string& run) {
        const std::string config = read_file(fs::path(run) / "config.toml");
        return config.substr(config.find("\nseed"));
      };
      CHECK(without_name(imported.path(output + "-run")) == without_name(imported.run()));
    }
  }
}

TEST_CASE("an export has the context, the template and the special tokens of the imported model") {
  FamilyFolder source("llama");
  source.config.update({{"max_position_embeddings", 8192}, {"bos_token_id", 1}, {"pad_token_id", 2}});
  write_file(source.dir / "chat_template.jinja", std::string("{{ messages }}"));
  const TempDir dir;
  const auto path = [&](const std::string& name) { return (dir / name).string(); };
  const auto run = [](const std::vector<std::string>& words) {
    const ProgramResult result = run_program(words);
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
  };
  run({"import", source.write(), path("run")});
  write_file(dir / "text.txt", std::string(600, 'a') + std::string(600, 'b'));
  run({"train", path("run/config.toml"), "--run-dir", path("tuned"), "--set", "model.init=" + path("run"),
       "--set", "data.path=" + path("text.txt"), "--set", "data.sequence_length=10", "--set", "train.steps=1",
       "--set", "lora.rank=2"});
  run({"merge", path("tuned"), path("merged")});
  for (const std::string name : {"run", "tuned", "merged"}) {
    CAPTURE(name);
    run({"export", path(name), path(name + "-hf")});
    const Json config = Json::parse(read_file(dir / (name + "-hf/config.json")));
    CHECK(config["max_position_embeddings"] == 8192);
    CHECK(config["bos_token_id"] == 1);
    CHECK(config["pad_token_id"] == 2);
    const Json tokens = Json::parse(read_file(dir / (name + "-hf/tokenizer_config.json")));
    CHECK(tokens["model_max_length"] == 8192);
    CHECK(tokens["bos_token"] == "b");
    CHECK(tokens["pad_token"] == "c");
    CHECK(tokens["chat_template"] == "{{ messages }}");
    run({"export", path(name), path(name + ".GGUF"), "--context", "100"});
    run({"import", path(name + ".GGUF"), path(name + "-again")});
    CHECK(Json::parse(read_file(dir / (name + "-again/source.json"))) ==
          Json{{"context_length", 100}, {"start_token", 1}, {"padding_token", 2}});
    CHECK(read_file(dir / (name + "-again/chat_template.jinja")) == "{{ messages }}");
  }
}

TEST_CASE("a number that bfloat16 cannot have is an error of an export") {
  FamilyFolder source("llama");
  source.tensors.at("model.layers.0.mlp.up_proj.weight").data<float>()[3] = -3.4e38F;
  const TempDir dir;
  const std::string run = (dir / "run").string();
  REQUIRE(run_program({"import", source.write(), run}).code == 0);
  for (const std::string name : {"out", "out.gguf"}) {
    const ProgramResult narrow = run_program({"export", run, (dir / name).string(), "--type", "bfloat16"});
    CHECK(narrow.code == 2);
    CHECK(contains(narrow.err, "has numbers that are too large for the type; choose --type float32"));
    CHECK(run_program({"export", run, (dir / name).string()}).code == 0);
  }
}

TEST_CASE("a model without a family is an error with the differences from the nearest family") {
  const ImportedRun imported;
  REQUIRE(run_program({"train", imported.path("run/config.toml"), "--run-dir", imported.path("post"), "--set",
                       "model.norm=post", "--set", "data.tokenizer=bytes", "--set",
                       "data.path=" + imported.path("text.txt"), "--set", "train.steps=1"})
              .code == 0);
  const ProgramResult result = run_program({"export", imported.path("post"), imported.path("out")});
  CAPTURE(result.err);
  CHECK(result.code == 2);
  CHECK(contains(result.err, "the nearest is llama: model.norm = \"post\", expected \"pre\"\n"));
  CHECK(contains(result.err, "other families: qwen2, qwen3, "));
  CHECK_FALSE(contains(result.err, "gla: gla"));
}

TEST_CASE("a failed import or export leaves nothing behind") {
  const ImportedRun imported;
  const auto entries = count_entries(imported.dir.path());
  const auto check_failure = [&](int code, const std::string& text, const std::vector<std::string>& words) {
    const ProgramResult result = run_program(words);
    CAPTURE(result.err);
    CHECK(result.code == code);
    CHECK(contains(result.err, text));
    CHECK(count_entries(imported.dir.path()) == entries);
  };
  const std::string source = imported.source.dir.path().string(), target = imported.path("new");
  check_failure(2, "RUN: " + imported.run() + " exists; choose a new name",
                {"import", source, imported.run()});
  check_failure(2, "is no name of a new file or folder", {"import", source, ".."});
  for (const std::string& name : {std::string("a\nb"), std::string("a\x1B"), std::string(240, 'a')})
    check_failure(2, "cannot be the name of a run", {"import", source, imported.path(name)});
  check_failure(2, "is not valid UTF-8", {"import", source, imported.path("a\xFF")});
  check_failure(3, "no such file or folder", {"import", imported.path("absent"), target});
  check_failure(3, "no valid GGUF file", {"import", imported.path("text.txt"), target});
  check_failure(3, "has no config.json", {"import", imported.run(), target});
  check_failure(2, "exists; choose a new name", {"export", imported.run(), imported.path("text.txt")});
  check_failure(2, "float32 or bfloat16", {"export", imported.run(), target, "--type", "q8_0"});
  check_failure(2, "model.gated_feedforward = true, expected false",
                {"export", imported.run(), target, "--family", "gpt2"});
  FamilyFolder damaged("llama");
  damaged.tensors.erase("model.norm.weight");
  check_failure(3, "has no tensor \"model.norm.weight\"", {"import", damaged.write(), target});
  write_file(damaged.dir / "config.json", std::string("{\"model_type\":"));
  check_failure(3, "config.json: is not valid JSON at byte", {"import", damaged.dir.path().string(), target});
}
