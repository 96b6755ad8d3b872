// Tests of the files in configs/: every file loads, and the configs of papers have the published settings.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "train/build.h"

using namespace tapeformer;

namespace {

namespace fs = std::filesystem;

const fs::path kConfigs = fs::path(SOURCE_DIR) / "configs";

// Loads a config file. Sets data.path if the user must provide the folder of the data set.
Config load_file(const fs::path& path) {
  const std::string name = path.filename().string();
  std::vector<std::string> sets;
  if (name.starts_with("timit-") || name.starts_with("librispeech-") || name.starts_with("kaldi-") ||
      name.starts_with("imagenet64-") || name == "own.toml")
    sets.emplace_back("data.path=/corpus");
  return load_config(path.string(), sets);
}

}  // namespace

TEST_CASE("every file of configs loads and has a unique run name") {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs)) {
    const fs::path path = entry.path();
    if (path.extension() != ".toml" || path.stem() == "base" || path.parent_path().filename() == "tables")
      continue;
    INFO(path.string());
    const Config config = load_file(path);
    CHECK(names.insert(config.run.name).second);
    fs::path relative = fs::relative(path, kConfigs);
    std::string expected = relative.replace_extension().string();
    std::replace(expected.begin(), expected.end(), '/', '-');
    CHECK(config.run.name == expected);
  }
  CHECK(names.size() >= 9);
}

TEST_CASE("paper configs have the settings of the papers") {
  struct Row {
    const char* file;
    int64_t layers, batch;
    double lr, attention_dropout, epochs;
    int64_t steps;
  };
  for (const Row& row :
       {Row{"mnist/linear", 8, 10, 1e-4, 0, 250, 0}, Row{"mnist/softmax", 8, 10, 1e-4, 0.1, 250, 0},
        Row{"cifar10/linear", 16, 4, 1e-4, 0, 10000, 0}, Row{"cifar10/softmax", 16, 1, 1e-4, 0.1, 10000, 0},
        Row{"mnist/lsh-1", 8, 10, 1e-4, 0, 250, 0}, Row{"cifar10/lsh-4", 16, 4, 1e-4, 0, 10000, 0},
        Row{"copy/linear", 4, 64, 1e-3, 0, 0, 10000}, Row{"copy/softmax", 4, 64, 1e-3, 0.1, 0, 10000},
        Row{"copy/lsh-4", 4, 64, 1e-3, 0, 0, 10000}}) {
    INFO(row.file);
    const Config config = load_file(kConfigs / (std::string(row.file) + ".toml"));
    const std::string kind = fs::path(row.file).filename().string();
    CHECK(config.model.attention == std::vector<std::string>{kind.starts_with("lsh") ? "lsh" : kind});
    CHECK(config.data.dataset == fs::path(row.file).parent_path().string());
    CHECK(config.model.get<int64_t>("layers") == row.layers);
    CHECK(config.model.get<int64_t>("heads") == 8);
    CHECK(config.model.get<int64_t>("head_dim") == 32);
    CHECK(config.model.get<int64_t>("feedforward") == 1024);
    if (config.model.type == "image") CHECK(config.model.get<int64_t>("mixtures") == 10);
    CHECK(config.model.get<double>("dropout") == 0.1);
    CHECK(config.model.get<double>("attention_dropout") == row.attention_dropout);
    CHECK(config.model.get<std::string>("norm") == "post");
    CHECK(config.model.get<std::string>("activation") == "relu");
    CHECK(config.model.get<std::string>("positions") == "sinusoidal");
    CHECK(config.data.batch_size == row.batch);
    CHECK_FALSE(config.data.shuffle);
    CHECK(config.optimizer.kind == "radam");
    CHECK(config.optimizer.lr == row.lr);
    CHECK(config.optimizer.weight_decay == 0.01);
    CHECK(config.optimizer.clip == "per_tensor");
    CHECK(config.optimizer.clip_norm == 1.0);
    CHECK(config.train.epochs == row.epochs);
    CHECK(config.train.steps == row.steps);
  }
}

TEST_CASE("paper configs with the LSH attention of fast_transformers have chunks that divide the sequences") {
  for (const auto& [set, chunk, length] :
       {std::tuple{"mnist", 29, 783}, {"cifar10", 37, 3071}, {"copy", 32, 128}})
    for (const int64_t rounds : {1, 4}) {
      const std::string name = std::string(set) + "/lsh-" + std::to_string(rounds) + ".toml";
      INFO(name);
      const Config config = load_file(kConfigs / name);
      CHECK(config.attention.at("lsh").get<std::string>("preset") == "fast_transformers");
      CHECK(config.attention.at("lsh").get<int64_t>("rounds") == rounds);
      CHECK(config.attention.at("lsh").get<int64_t>("chunk_length") == chunk);
      CHECK(get_dataset_info(config).length == length);
      CHECK(length % chunk == 0);
    }
}

TEST_CASE("configs of recall tasks share the model and have targets of their own lengths") {
  for (const char* name : {"mqar", "parity", "palindrome"}) {
    INFO(name);
    const Config config = load_file(kConfigs / "recall" / (std::string(name) + ".toml"));
    CHECK(config.data.dataset == name);
    CHECK(config.model.get<int64_t>("heads") * config.model.get<int64_t>("head_dim") == 64);
    CHECK(config.model.get<int64_t>("layers") == 2);
    const std::string length = name == std::string("parity") ? "test_length" : "max_length";
    CHECK(get_dataset_info(config).model_length() == config.data.get<int64_t>(length));
    CHECK(choose_evaluation_split(config) == "valid");
  }
}

TEST_CASE("speech configs have the sizes of the paper for every corpus") {
  for (const std::string corpus : {"an4", "fsdd", "synthetic-speech", "timit", "librispeech", "kaldi"})
    for (const char* name : {"bilstm", "softmax", "linear", "lsh-4"}) {
      INFO(corpus << " " << name);
      const Config config = load_file(kConfigs / "speech" / (corpus + "-" + name + ".toml"));
      CHECK(config.model.type == "speech");
      CHECK(config.data.dataset == corpus);
      CHECK(config.data.get<int64_t>("validation") == (corpus == "timit"                     ? 368
                                                       : corpus == "an4" || corpus == "fsdd" ? 100
                                                                                             : 0));
      CHECK(config.schedule.kind == "plateau");
      CHECK(format_config_value(config, "schedule.factor") == "0.5");
      if (std::string(name) == "bilstm") {
        CHECK(config.model.get<std::string>("encoder") == "lstm");
        CHECK(config.model.get<int64_t>("layers") == 3);
        CHECK(config.model.get<int64_t>("hidden") == 320);
        CHECK(config.optimizer.kind == "adam");
        CHECK(config.optimizer.lr == 1e-3);
        continue;
      }
      CHECK(config.model.get<std::string>("encoder") == "transformer");
      CHECK(config.model.attention == std::vector<std::string>{std::string(name) == "lsh-4" ? "lsh" : name});
      CHECK(config.model.get<int64_t>("layers") == 9);
      CHECK(config.model.get<int64_t>("heads") == 6);
      CHECK(config.model.get<int64_t>("head_dim") == 32);
      CHECK(config.model.get<int64_t>("feedforward") == 768);
      CHECK_FALSE(config.model.get<bool>("causal"));
      CHECK(config.optimizer.kind == "radam");
      CHECK(config.optimizer.lr == 1e-4);
    }
}
