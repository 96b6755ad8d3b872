#include "train/config/config.h"

#include <doctest/doctest.h>

#include "tests/train/config/config_fixture.h"

using namespace tapeformer;
using tapeformer::test::contains;

namespace {

const std::string kMinimal = "[train]\nsteps = 5\n";

Config load(const std::string& path, const std::vector<std::string>& sets = {}) {
  return load_config(path, sets);
}

}  // namespace

TEST_CASE("a minimal config has the defaults of the struct and the name of its file") {
  TempFolder folder;
  const Config config = load(folder.write("tiny.toml", kMinimal));
  CHECK(config.run.name == "tiny");
  CHECK(config.run.seed == 1);
  CHECK(config.data.dataset == "mnist");
  CHECK(config.model.attention == std::vector<std::string>{"linear"});
  CHECK(format_config_value(config, "optimizer.betas") == "[0.9, 0.999]");
  CHECK(config.train.steps == 5);
  CHECK(config.attention.at("linear").get<double>("eps") == 1e-6);
  CHECK(config.attention.at("linear").get<std::string>("feature_map") == "elu_plus_one");
}

TEST_CASE("every type of key is read, and an integer is converted to a number") {
  TempFolder folder;
  const Config config = load(folder.write("a.toml", R"(
run.name = "é name"
[data]
shuffle = false
[model]
attention = "synthesizer"
dropout = 0
[attention]
train_random = false
terms = ["dense", "random"]
[optimizer]
lr = 1e-3
betas = [0, 0.5]
[schedule]
kind = "step"
step_at = [3000, 6000]
[train]
epochs = 2
)"));
  CHECK(config.run.name == "é name");
  CHECK_FALSE(config.data.shuffle);
  CHECK(config.model.get<double>("dropout") == 0.0);
  CHECK_FALSE(config.attention.at("synthesizer").get<bool>("train_random"));
  CHECK(config.attention.at("synthesizer").get<std::vector<std::string>>("terms") ==
        std::vector<std::string>{"dense", "random"});
  CHECK(config.optimizer.lr == 1e-3);
  CHECK(format_config_value(config, "optimizer.betas") == "[0.0, 0.5]");
  CHECK(format_config_value(config, "schedule.step_at") == "[3000, 6000]");
  CHECK(config.train.epochs == 2.0);
}

TEST_CASE("the resolved file contains every key with an effect, and is read back exactly") {
  TempFolder folder;
  const Config config = load(folder.write("a.toml", R"(
[run]
name = "quo\"te \\ \u007F é"
seed = 9223372036854775807
[data]
dataset = "librispeech"
path = "/corpus"
train_part = "tab\t \u0001, line\n"
[model]
type = "speech"
attention = "synthesizer"
[attention]
terms = ["dense", "random"]
[optimizer]
lr = 0.30000000000000004
eps = 5e-324
weight_decay = 1.7976931348623157e308
[schedule]
kind = "step"
step_at = [10, 9007199254740991]
[train]
steps = 3
)"));
  const std::string text = to_toml(config);
  const Config again = load(folder.write("b.toml", text));
  CHECK(find_differing_keys(config, again).empty());
  CHECK(again.optimizer.lr == 0.30000000000000004);
  CHECK(again.run.name == "quo\"te \\ \x7f é");
  CHECK(again.data.get<std::string>("train_part") == "tab\t \x01, line\n");
  CHECK(again.attention.at("synthesizer").get<std::vector<std::string>>("terms") ==
        std::vector<std::string>{"dense", "random"});
  CHECK(again.run.seed == INT64_MAX);
  CHECK(to_toml(again) == text);
  for (const char* key : {"ema = ", "keep_last = ", "train_part = ", "step_at = ", "terms = ", "[attention]"})
    CHECK_MESSAGE(text.find(key) != std::string::npos, key);
  for (const char* key : {"patience = ", "symbols = ", "hidden = ", "momentum = ", "clip = "})
    CHECK_MESSAGE(text.find(key) == std::string::npos, key);
}

TEST_CASE("find_differing_keys() and format_config_value() describe the differences of configs") {
  TempFolder folder;
  const Config a = load(folder.write("a.toml", kMinimal));
  const Config b = load(folder.path("a.toml"), {"model.layers=2", "attention.eps=0.5", "optimizer.lr=1"});
  CHECK(find_differing_keys(a, b) ==
        std::vector<std::string>{"model.layers", "attention.eps", "optimizer.lr"});
  CHECK(format_config_value(b, "model.layers") == "2");
  CHECK(format_config_value(b, "optimizer.lr") == "1.0");
  CHECK(format_config_value(b, "attention.feature_map") == "\"elu_plus_one\"");
  CHECK_THROWS_AS(format_config_value(b, "model.laers"), std::out_of_range);
  const Config c = load(folder.path("a.toml"), {"model.attention=softmax"});
  CHECK(find_differing_keys(a, c) == std::vector<std::string>{"model.attention", "attention.eps",
                                                              "attention.feature_map", "attention.features",
                                                              "attention.output_gate", "attention.rotation"});
}

TEST_CASE("find_keys_fixed_by_training() lists the changes for which other weights are necessary") {
  using Names = std::vector<std::string>;
  TempFolder folder;
  const std::string path = folder.write("a.toml", kMinimal);
  const auto changed = [&](const Names& trained, const Names& sets) {
    Names all = trained;
    all.insert(all.end(), sets.begin(), sets.end());
    Names names;
    for (const auto& [name, value] : find_keys_fixed_by_training(load(path, trained), load(path, all)))
      names.push_back(name);
    return names;
  };
  CHECK(changed({}, {"model.layers=2", "optimizer.lr=1", "attention.eps=0.5"}).empty());
  CHECK(changed({}, {"model.heads=1", "model.norm=pre", "attention.feature_map=relu"}) ==
        Names{"model.heads", "model.norm", "attention.feature_map"});
  CHECK(changed({"model.attention=lsh"}, {"attention.rounds=8", "attention.chunk_length=32"}).empty());
  CHECK(changed({"model.attention=lsh"}, {"model.attention=shared-softmax"}).empty());
  CHECK(changed({"model.attention=lsh"}, {"model.attention=linear"}) == Names{"model.attention"});
  const std::string two = "model.attention=['gated-delta', 'softmax']";
  CHECK(changed({two}, {"model.attention=['gated-delta', 'local']", "attention.local.window=4"}).empty());
  CHECK(changed({two}, {"model.attention=['softmax', 'gated-delta']"}) == Names{"model.attention"});
  CHECK(changed({two}, {"attention.gated-delta.output_gate=sigmoid"}) ==
        Names{"attention.gated-delta.output_gate"});
  // The keys of a layer have other names if the number of kinds changes, and those of a replaced kind always.
  const Names silu = {"attention.conv=3", "attention.conv_activation=silu"};
  const std::string list = "model.attention=['softmax', 'local']";
  const Config trained = load(path, {"model.attention=softmax", silu[0], silu[1]}),
               mixed = load(path, {list, "attention.softmax.conv=3", "attention.local.conv=3"});
  CHECK(find_keys_fixed_by_training(trained, mixed) ==
        FixedKeys{{"attention.softmax.conv_activation", "\"silu\""},
                  {"attention.local.conv_activation", "\"silu\""}});
  CHECK(find_keys_fixed_by_training(mixed, trained) == FixedKeys{{"attention.conv_activation", "\"none\""}});
}

TEST_CASE("extends merges tables key by key, relative to the extending file, in chains") {
  TempFolder folder;
  folder.write("base/root.toml",
               "[model]\nlayers = 2\nheads = 4\n[train]\nsteps = 5\n[attention]\neps = 0.5\n");
  folder.write("base/middle.toml", "extends = \"root.toml\"\n[model]\nheads = 2\n");
  const Config config = load(
      folder.write("top.toml", "extends = \"base/middle.toml\"\n[model]\nhead_dim = 16\n"), {"data.limit=7"});
  CHECK(config.run.name == "top");
  CHECK(config.model.get<int64_t>("layers") == 2);
  CHECK(config.model.get<int64_t>("heads") == 2);
  CHECK(config.model.get<int64_t>("head_dim") == 16);
  CHECK(config.attention.at("linear").get<double>("eps") == 0.5);
  CHECK(config.data.limit == 7);
}

TEST_CASE("a file or --set that changes the attention kind drops the options of the inherited kind") {
  TempFolder folder;
  folder.write("base.toml", "[model]\nattention = \"linear\"\n[attention]\neps = 0.5\n[train]\nsteps = 5\n");
  const auto path = folder.write("top.toml",
                                 "extends = \"base.toml\"\n[model]\nattention = \"lsh\"\n"
                                 "[attention]\nrounds = 4\n");
  CHECK(load(path).attention.at("lsh").get<int64_t>("rounds") == 4);
  CHECK(!load(path).attention.contains("linear"));
  CHECK(load(path, {"model.attention=linear"}).attention.at("linear").get<double>("eps") == 0.5);
  CHECK(!load(path, {"model.attention=softmax"}).attention.at("softmax").contains("eps"));
}

TEST_CASE("a file with options of attention may take the kind from the file that extends it") {
  TempFolder folder;
  folder.write("base.toml", "[attention]\nrounds = 8\n");
  const auto path =
      folder.write("top.toml", "extends = \"base.toml\"\n[model]\nattention = \"lsh\"\n" + kMinimal);
  CHECK(load(path).attention.at("lsh").get<int64_t>("rounds") == 8);
}

TEST_CASE("setting train.steps replaces inherited train.epochs, and the reverse") {
  TempFolder folder;
  const auto path = folder.write("a.toml", "[train]\nepochs = 250\n");
  const Config config = load(path, {"train.steps=20"});
  CHECK(config.train.steps == 20);
  CHECK(config.train.epochs == 0.0);
  const Config back = load(folder.write("b.toml", to_toml(config)), {"train.epochs=0.5"});
  CHECK(back.train.steps == 0);
  CHECK(back.train.epochs == 0.5);
}

TEST_CASE("--set parses TOML values and bare words, and the last value applies") {
  TempFolder folder;
  const auto path = folder.write("a.toml", kMinimal);
  const Config config =
      load(path, {"model.norm=pre", "run.device=cuda:1", "run.name=\"two words\"", "data.shuffle=false",
                  "optimizer.betas=[0.8, 0.9]", "optimizer.lr=1", "optimizer.lr=2e-3", "data.limit=1_000"});
  CHECK(config.model.get<std::string>("norm") == "pre");
  CHECK(config.run.device == "cuda:1");
  CHECK(config.run.name == "two words");
  CHECK_FALSE(config.data.shuffle);
  CHECK(format_config_value(config, "optimizer.betas") == "[0.8, 0.9]");
  CHECK(config.optimizer.lr == 2e-3);
  CHECK(config.data.limit == 1000);
}

TEST_CASE("help has the defaults of translation that differ from the listed ones") {
  const auto check_defaults = [](const std::string& table, const std::vector<OptionSpec>& options) {
    for (const OptionSpec& option : options)
      for (const OptionSpec& listed : list_config_keys())
        if (listed.name == table + "." + option.name && listed.default_value != option.default_value)
          CHECK_MESSAGE((contains(listed.help, "translation") && contains(listed.help, "default")),
                        listed.name);
  };
  check_defaults("model", find_model_kind("translation").options);
  check_defaults("data", find_dataset_kind("translation").options);
}

TEST_CASE("help lists every key with its default, range and choices") {
  const std::string help = format_config_help();
  CHECK(help.find("batch_size = 10\n      sequences per batch, summed over all processes (an integer from 1 "
                  "to 1048576; for batches of a number of sequences)") != std::string::npos);
  CHECK(help.find("betas = [0.9, 0.999]") != std::string::npos);
  CHECK(help.find("(one of \"post\", \"pre\"; for configs where model.encoder = \"transformer\")") !=
        std::string::npos);
  CHECK(help.find("[attention]  # where model.attention = \"lsh\"") != std::string::npos);
  CHECK(help.find("(a list of 2 numbers of at least 0 and below 1; for the optimizers ") !=
        std::string::npos);
}
