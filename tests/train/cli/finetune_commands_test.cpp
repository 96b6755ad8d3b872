// Commands that finetune a language model: on prompts and answers, with adapters, and merging of the
// adapters.
#include <fstream>

#include "tests/train/cli/text_run.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Json = nlohmann::json;

// A TextRun with a file of prompts and answers.
class PromptsRun : public TextRun {
 public:
  PromptsRun() : TextRun("linear", "bytes") {
    std::string lines;
    for (int i = 0; i < 40; ++i)
      lines += i % 2 ? "{\"prompt\": \"cat?\", \"completion\": \" It sat.\"}\n"
                     : "{\"prompt\": \"dog?\", \"completion\": \" It ran.\"}\n";
    write_file(prompts_path(), lines);
  }
  std::string prompts_path() const { return (dir / "prompts.jsonl").string(); }
  std::string tuned_path() const { return (dir / "tuned").string(); }
  // Trains from the run on the prompts.
  ProgramResult tune(const Words& settings = {}) const {
    Words words = {"train",     path() + "/config.toml",
                   "--run-dir", tuned_path(),
                   "--set",     "model.init=" + path(),
                   "--set",     "data.dataset=prompts",
                   "--set",     "data.path=" + prompts_path(),
                   "--set",     "train.steps=60",
                   "--set",     "optimizer.lr=0.02"};
    for (const std::string& setting : settings) {
      words.emplace_back("--set");
      words.push_back(setting);
    }
    return run_program(words);
  }
};

double evaluate(const std::string& run) {
  const ProgramResult result = run_program({"eval", run, "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  return Json::parse(result.out)["nats_per_dim"];
}

}  // namespace

TEST_CASE("a model of a text learns answers with adapters, and merge writes a run without adapters") {
  const PromptsRun run;
  const ProgramResult tuned =
      run.tune({"lora.rank=4", "lora.targets=[\"layers.*\"]", "data.sequence_length=40"});
  CAPTURE(tuned.err);
  REQUIRE(tuned.code == 0);
  CHECK(contains(tuned.err, "parameters are trained"));
  const double loss = evaluate(run.tuned_path());
  const std::string merged = (run.dir / "merged").string();
  const ProgramResult written = run_program({"merge", run.tuned_path(), merged});
  CAPTURE(written.err);
  REQUIRE(written.code == 0);
  CHECK(evaluate(merged) == doctest::Approx(loss).epsilon(1e-6));
  CHECK(run_program({"generate", merged, "--prompt", "cat?", "--length", "8"}).out ==
        run_program({"generate", run.tuned_path(), "--prompt", "cat?", "--length", "8"}).out);

  const ProgramResult large = run.tune({"lora.rank=1000"});
  CHECK(large.code == 2);
  CHECK(contains(large.err, "lora.rank: expected at most "));
  const ProgramResult again = run_program({"merge", run.tuned_path(), merged});
  CHECK(again.code == 2);
  CHECK(contains(again.err, "merged exists; choose a new name"));
  const ProgramResult plain = run_program({"merge", merged, (run.dir / "other").string()});
  CHECK(plain.code == 2);
  CHECK(contains(plain.err, "the run has no adapters"));
  const ProgramResult peft = run_program({"merge", run.tuned_path(), (run.dir / "peft").string(), "--peft"});
  CHECK(peft.code == 0);
  const Json config = Json::parse(read_file(run.dir / "peft/adapter_config.json"));
  CHECK(config["r"] == 4);
  CHECK(config["lora_alpha"] == 16);
  const SafetensorsFile file((run.dir / "peft/adapter_model.safetensors").string());
  CHECK(file.entries().contains("base_model.model.layers.0.attention.query_projection.lora_A.weight"));

  // A training of all parameters starts from the merged weights.
  const ProgramResult next =
      run_program({"train", merged + "/config.toml", "--run-dir", (run.dir / "next").string(), "--set",
                   "model.init=" + merged, "--set", "train.steps=1"});
  CAPTURE(next.err);
  CHECK(next.code == 0);
}

TEST_CASE("a model that is finetuned on prompts answers them") {
  const PromptsRun run;
  const ProgramResult tuned = run.tune({"train.steps=300", "data.packed=false", "data.sequence_length=40"});
  CAPTURE(tuned.err);
  REQUIRE(tuned.code == 0);
  const ProgramResult answer =
      run_program({"generate", run.tuned_path(), "--prompt", "dog?", "--length", "8", "--temperature", "0"});
  CAPTURE(answer.err);
  CHECK(contains(answer.out, "dog? It ran."));
  const ProgramResult context = run_program({"eval", run.tuned_path(), "--context", "carried"});
  CHECK(context.code == 2);
  CHECK(contains(context.err, "is no continuous text"));
}

TEST_CASE("a question of --chat has the template of the run, and only the answer is printed") {
  const PromptsRun run;
  REQUIRE(run.tune({"data.chat_template=chatml", "data.sequence_length=100", "train.steps=2"}).code == 0);
  const Words words{"generate", run.tuned_path(), "--chat", "cat?", "--system", "S", "--length", "5"};
  Words with_json = words;
  with_json.emplace_back("--json");
  const ProgramResult json = run_program(with_json), shown = run_program(words);
  CAPTURE(json.err);
  REQUIRE(json.code == 0);
  CHECK(Json::parse(json.out)["prompt"] ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\ncat?<|im_end|>\n<|im_start|>assistant\n");
  CHECK(shown.code == 0);
  CHECK_FALSE(contains(shown.out, "<|im_start|>user"));
  const ProgramResult none = run_program({"generate", run.path(), "--chat", "cat?"});
  CHECK(none.code == 2);
  CHECK(contains(none.err, "--chat: neither the data of the run nor its tokenizer has a chat template"));
  CHECK(contains(run_program({"generate", run.path(), "--system", "S"}).err,
                 "--system: has an effect with --chat"));
}

TEST_CASE("errors in prompts name the config key, the file and the line, with exit status 3") {
  const PromptsRun run;
  std::ofstream(run.prompts_path(), std::ios::app) << "{\"prompt\": 3}\n";
  const ProgramResult result = run.tune();
  CHECK(result.code == 3);
  CHECK_MESSAGE(contains(result.err, "data.path: " + run.prompts_path() + ":41: prompt: expected a text"),
                result.err);
  const ProgramResult pattern = run.tune({"train.freeze=[\"layer.*\"]"});
  CHECK(pattern.code == 3);  // the data are read first
  const ProgramResult adapters = run_program(
      {"train", run.path() + "/config.toml", "--run-dir", run.tuned_path(), "--set", "lora.rank=2"});
  CHECK(adapters.code == 2);
  CHECK(contains(adapters.err, "adapters extend the weights of model.init, which is empty"));
}
