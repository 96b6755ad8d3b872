// Tests of config keys that have no effect, such as model.heads for an LSTM. Setting a key without effect is
// an error, unless the key is inherited from another config file.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/support/temp_dir.h"
#include "tests/train/config/config_fixture.h"
#include "train/build.h"
#include "train/config/schema.h"

using namespace tapeformer;
using tapeformer::test::contains;
using tapeformer::test::message_of;
namespace fs = std::filesystem;

namespace {

const std::string kImages = "[train]\nsteps = 5\n";
const std::string kCopy = "[data]\ndataset = \"copy\"\n[model]\ntype = \"sequence\"\n[train]\nsteps = 5\n";
const std::string kSpeech = "[data]\ndataset = \"an4\"\n[model]\ntype = \"speech\"\n[train]\nsteps = 5\n";
const std::string kLstm =
    "[data]\ndataset = \"an4\"\n[model]\ntype = \"speech\"\nencoder = \"lstm\"\n[train]\nsteps = 5\n";

std::string set_error(const std::string& text, const std::vector<std::string>& sets) {
  const TempFolder folder;
  return find_config_error(folder.write("a.toml", text), sets);
}

Config load_with(const std::string& path, const std::vector<std::string>& sets = {},
                 const ConfigLoadOptions& options = {}) {
  return load_config(path, sets, options);
}

using Names = std::set<std::string>;

Names unused_keys(const std::string& text, const std::vector<std::string>& sets = {}) {
  const TempFolder folder;
  const Config config = load_config(folder.write("a.toml", text), sets);
  Names names;
  for (const SchemaKey& key : make_config_schema())
    if (!explain_unused_key(config, key.name()).empty()) names.insert(key.name());
  return names;
}

// Returns the names as lines, so that doctest prints both lists if the lists differ.
std::string text(const Names& names) {
  std::string all;
  for (const std::string& name : names) all += name + "\n";
  return all;
}

Names joined(Names a, const Names& b) {
  a.insert(b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("--set of a key that the config does not use is an error") {
  CHECK(set_error(kImages, {"data.dataset=cifar10", "data.symbols=4"}) ==
        "--set data.symbols: belongs to the data sets \"copy\", \"duplication\" and \"palindrome\", and "
        "data.dataset is \"cifar10\"");
  CHECK(contains(set_error(kCopy, {"data.dataset=text", "data.path=text.txt", "data.color=gray"}),
                 "--set data.color: belongs to the data set"));
  const std::string path = set_error(kCopy, {"data.path=text.txt"});
  CHECK(path.starts_with("--set data.path: belongs to the data sets "));
  CHECK(path.ends_with(" others, and data.dataset is \"copy\""));
  struct Row {
    std::string text, set, reason;
  };
  for (const Row& row : std::vector<Row>{
           {kImages, "run.tf32=true run.device=cpu", "CUDA devices, and run.device is \"cpu\""},
           {kImages, "run.cuda_graphs=false run.device=cpu", "CUDA devices, and run.device is \"cpu\""},
           {kImages, "run.tf32=true run.precision=bfloat16", "the precision \"float32\""},
           {kImages, "model.axial_dims=[256]",
            "configs where model.positions = \"axial\", and model.positions is"},
           {kImages, "data.symbols=4", "the data sets \"copy\", \"duplication\" and \"palindrome\""},
           {kImages, "model.hidden=4", "the model type \"speech\""},
           {kImages, "schedule.patience=3", "the schedule \"plateau\", and schedule.kind is \"constant\""},
           {kImages, "schedule.factor=0.5", "the schedules \"step\" and \"plateau\""},
           {kImages, "optimizer.momentum=0.5",
            "the optimizers \"sgd\" and \"muon\", and optimizer.kind is \"radam\""},
           {kImages, "optimizer.eps=1 optimizer.kind=sgd",
            "the optimizers \"radam\", \"adam\", \"adamw\" and \"muon\""},
           {kImages, "optimizer.clip=per_tensor", "optimizer.clip_norm above 0"},
           {kImages, "train.dropout_steps=3 model.dropout=0", "training with dropout"},
           {kCopy, "model.mixtures=3", "the model type \"image\", and model.type is \"sequence\""},
           {kCopy, "data.downscale=2", "the data sets \"mnist\", \"fashion-mnist\" and \"cifar10\""},
           {kImages, "data.color=gray", "the data sets \"cifar10\" and \"images\""},
           {kCopy, "data.validation=2", "the data sets \"mnist\", \"fashion-mnist\", \"cifar10\" and "},
           {kSpeech, "data.sample_rate=8000", "and data.dataset is \"an4\""},
           {kSpeech, "data.lexicon=words", "the data sets \"fsdd\", \"kaldi\" and \"librispeech\""},
           {kSpeech, "data.phone_set=timit39", "the data set \"timit\""},
           {kSpeech, "data.time_width=3",
            "configs where data.spec_augment is set, and data.spec_augment is false"},
           {kSpeech, "data.cmvn_variance=false data.cmvn=none",
            "configs where data.cmvn = \"utterance\" or \"speaker\" or \"global\""},
           {kSpeech, "model.bidirectional=false",
            "configs where model.encoder = \"lstm\", and model.encoder is \"transformer\""},
           {kSpeech, "model.subsampling_kind=conv",
            "configs where model.subsampling = 2 or 4, and model.subsampling is 1"},
           {kLstm, "model.positions=rotary",
            "configs where model.encoder = \"transformer\", and model.encoder is \"lstm\""},
           {kLstm, "model.heads=3",
            "configs where model.encoder = \"transformer\", and model.encoder is \"lstm\""},
           {kLstm, "model.causal=true", "configs where model.encoder = \"transformer\""},
           {kLstm, "attention.eps=0.5", "Transformers, and model.encoder is \"lstm\""},
           {kLstm, "attention.nonsense=8", "Transformers, and model.encoder is \"lstm\""}}) {
    std::istringstream words(row.set);
    const std::vector<std::string> sets{std::istream_iterator<std::string>(words), {}};
    INFO(row.set);
    const std::string error = set_error(row.text, sets);
    INFO(error);
    CHECK(error.starts_with("--set " + sets[0].substr(0, sets[0].find('=')) + ": belongs to "));
    CHECK(contains(error, row.reason));
    CHECK(std::count(error.begin(), error.end(), '\n') == 0);
  }
}

TEST_CASE("a key in the file that the config does not use is an error") {
  const TempFolder folder;
  const auto path =
      folder.write("a.toml", "[train]\nsteps = 5\n[data]\ndownscale = 2\npath = \"x\"\nsymbols = 3\n");
  const std::string error = find_config_error(path);
  CHECK(error.starts_with(path + ":5:1: data.path: belongs to the data sets "));
  CHECK(error.ends_with(path + ":6:1: data.symbols: belongs to the data sets \"copy\", "
                               "\"duplication\" and \"palindrome\", and data.dataset is \"mnist\""));
}

TEST_CASE("inherited keys and defaults in files may be without effect") {
  const TempFolder folder;
  folder.write("base.toml",
               "[data]\npath = \"/corpus\"\n[model]\nheads = 6\ncausal = true\n[schedule]\nfactor = 0.5\n"
               "[train]\nsteps = 5\n");
  const Config lstm =
      load_with(folder.write("lstm.toml",
                             "extends = \"base.toml\"\n[data]\ndataset = \"an4\"\n[model]\ntype = "
                             "\"speech\"\nencoder = \"lstm\"\n"));
  CHECK(lstm.data.get<std::string>("path") == "/corpus");
  // A key without effect has its default value in the loaded config.
  CHECK(lstm.model.get<int64_t>("heads") == 8);
  CHECK_FALSE(lstm.model.get<bool>("causal"));
  CHECK(format_config_value(lstm, "schedule.factor") == "0.1");
  const Config image =
      load_with(folder.write("image.toml", "extends = \"base.toml\"\n[data]\nsymbols = 10\n"));
  CHECK_FALSE(image.data.has("path"));
  CHECK(image.model.get<int64_t>("heads") == 6);
}

TEST_CASE("a key of the file that loses its effect through --set is allowed") {
  const TempFolder folder;
  const auto path = folder.write("a.toml", kImages + "[schedule]\nkind = \"cosine\"\nfinal_lr_ratio = 0.5\n");
  CHECK(format_config_value(load_with(path, {"schedule.kind=constant"}), "schedule.final_lr_ratio") == "0.0");
  const auto devices = folder.write("b.toml", kImages + "[run]\ntf32 = true\n");
  CHECK(load_with(devices).run.tf32);
  CHECK_FALSE(load_with(devices, {}, {.device = "cpu"}).run.tf32);
  // For a key that has no effect, --set accepts the default value and rejects other values.
  CHECK(find_config_error(devices, {"run.device=cpu", "run.tf32=false"}) == "");
  CHECK(contains(find_config_error(devices, {"run.device=cpu", "run.tf32=true"}),
                 "--set run.tf32: belongs to"));
}

TEST_CASE("keys that earlier versions wrote have no effect in files and are unknown in --set") {
  const TempFolder folder;
  const auto file =
      folder.write("a.toml", "data.allow_commands = true\nrun.time_products = false\n" + kImages);
  CHECK(find_config_error(file) == "");
  for (const std::string key : {"data.allow_commands", "run.time_products"})
    CHECK(contains(set_error(kImages, {key + "=false"}), "unknown key"));
}

TEST_CASE("--set of a key that the command does not use is an error") {
  const TempFolder folder;
  const auto path = folder.write("a.toml", kSpeech);
  const auto error = [&](const std::string& set, ConfigPurpose purpose) {
    try {
      load_with(path, {set}, {.unused_key_policy = UnusedKeyPolicy::ignore_in_file, .purpose = purpose});
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error("optimizer.lr=1", ConfigPurpose::training).empty());
  CHECK(error("optimizer.lr=1", ConfigPurpose::evaluation) ==
        "--set optimizer.lr: has an effect in training only");
  CHECK(error("run.threads=1", ConfigPurpose::evaluation) ==
        "--set run.threads: has an effect in training only; use --threads");
  CHECK(error("data.limit=3", ConfigPurpose::evaluation).empty());
  CHECK(error("data.path=/corpus", ConfigPurpose::transcription) ==
        "--set data.path: belongs to data sets, and this command reads no data set");
  CHECK(error("data.cmvn=global", ConfigPurpose::transcription).empty());
  CHECK(error("model.layers=2", ConfigPurpose::generation).empty());
  CHECK(contains(error("data.limit=2", ConfigPurpose::generation), "this command reads no data set"));
}

TEST_CASE("settings that several configs share are ignored where they have no effect") {
  const TempFolder folder;
  const ConfigLoadOptions shared{.unused_key_policy = UnusedKeyPolicy::ignore};
  const auto path = folder.write("a.toml", kLstm);
  CHECK(load_with(path, {"model.heads=2", "model.hidden=4", "attention.rounds=3"}, shared)
            .model.get<int64_t>("hidden") == 4);
  CHECK_THROWS_AS(load_with(path, {"model.hiden=4"}, shared), ConfigError);
  const auto softmax = folder.write("b.toml", kImages + "[model]\nattention = \"softmax\"\n");
  CHECK(load_with(softmax, {"attention.rounds=3"}, shared).attention.at("softmax") ==
        find_attention_kind("softmax").default_options());
  CHECK_THROWS_AS(load_with(softmax, {"attention.ronds=3"}, shared), ConfigError);
  CHECK(explain_unused_key(load_with(softmax), "attention.rounds") ==
        "attention kind \"softmax\" has no such key");
}

TEST_CASE("relative paths of a config become absolute, so that the config can be used from another folder") {
  const TempFolder folder;
  const auto path = folder.write("a.toml", kSpeech + "[run]\nname = \"x\"\n");
  const Config config = load_with(path, {"data.path=corpora/../an4", "data.feature_cache=cache"});
  CHECK(config.data.get<std::string>("path") == (fs::current_path() / "an4").string());
  CHECK(config.data.get<std::string>("feature_cache") == (fs::current_path() / "cache").string());
  CHECK_FALSE(config.data.has("lexicon"));
  CHECK(load_with(folder.write("b.toml", to_toml(config))).data.get<std::string>("path") ==
        config.data.get<std::string>("path"));
}

TEST_CASE("a relative model.init becomes absolute, so that the config of the run repeats it in any folder") {
  const TempFolder folder;
  const Config config = load_with(folder.write("a.toml", kImages), {"model.init=runs/first"});
  CHECK(config.model.init == (fs::current_path() / "runs/first").string());
}

// Returns the keys that have no effect with the default positions, optimizer, schedule and attention.
Names unused_by_defaults() {
  return {
      "model.rotary_base",    "model.rotary_share",      "model.rotary_scaling",    "model.rotary_factor",
      "model.rotary_length",  "model.rotary_slow",       "model.rotary_fast",       "model.rotary_amplitude",
      "model.position_count", "model.axial_shape",       "model.axial_dims",        "schedule.step_at",
      "schedule.factor",      "schedule.final_lr_ratio", "schedule.patience",       "schedule.threshold",
      "optimizer.momentum",   "optimizer.clip",          "model.attention_dropout", "model.reversible_input"};
}

// Returns the keys that have no effect in any config of this file.
Names unused_by_all() {
  return {"data.image_size",
          "data.color",
          "data.bad_images",
          "data.image_cache",
          "data.valid_share",
          "data.test_share",
          "data.valid_path",
          "data.test_path",
          "data.tokenizer",
          "data.vocabulary",
          "data.sequence_length",
          "data.sentencepiece_model",
          "data.tokenizer_file",
          "data.unknown_characters",
          "data.eval_context",
          "optimizer.form",
          "optimizer.iterations",
          "optimizer.adamw",
          "optimizer.decay_rate",
          "optimizer.update_clip",
          "data.min_length",
          "data.max_depth",
          "data.max_args",
          "data.test_length",
          "data.tokens",
          "data.pairs",
          "data.min_pairs",
          "data.test_pairs",
          "data.power",
          "data.streams",
          "data.components",
          "data.chat_template",
          "data.packed",
          "data.system_prompt",
          "distill.target",
          "lora.alpha",
          "lora.dropout",
          "lora.targets",
          "model.init_new",
          "model.init_tokens",
          "model.init_unused",
          "model.decoder_layers",
          "model.summary_tokens",
          "model.masked_share",
          "data.source",
          "data.target",
          "data.valid_source",
          "data.valid_target",
          "data.test_source",
          "data.test_target",
          "data.source_language",
          "data.target_language",
          "data.unit",
          "data.max_ratio",
          "data.valid_pairs",
          "data.batch_tokens",
          "model.cross_attention",
          "model.shared_embeddings"};
}

// Returns the keys that only models of type "sequence" use.
Names sequence_keys() {
  return {"model.tied_embeddings", "model.label_smoothing", "model.z_loss"};
}

TEST_CASE("configs of images and sequences have the expected keys without effect") {
  const Names speech_data = {"data.path",          "data.max_frames",      "data.train_part",
                             "data.valid_part",    "data.test_part",       "data.lexicon",
                             "data.unknown_words", "data.bad_utterances",  "data.phone_set",
                             "data.sample_rate",   "data.resample",        "data.channel",
                             "data.num_mel_bins",  "data.dither",          "data.deltas",
                             "data.cmvn",          "data.cmvn_variance",   "data.spec_augment",
                             "data.max_seconds",   "data.frequency_masks", "data.frequency_width",
                             "data.time_masks",    "data.time_width",      "data.time_share",
                             "data.feature_cache"};
  const Names speech_model = {"model.encoder",    "model.hidden",      "model.bidirectional",
                              "model.causal",     "model.subsampling", "model.subsampling_kind",
                              "model.max_frames", "model.ctc_mean"};
  const Names defaults = joined(unused_by_defaults(), unused_by_all());
  const Names image = joined(joined(joined(joined(speech_data, speech_model), defaults), sequence_keys()),
                             {"data.max_length", "data.symbols"});
  CHECK(text(unused_keys(kImages)) == text(image));
  CHECK(text(unused_keys(kCopy)) == text(joined(joined(joined(speech_data, speech_model), defaults),
                                                {"data.downscale", "data.validation", "model.mixtures"})));
  Names softmax = joined(joined(speech_data, speech_model),
                         {"data.max_length",      "data.symbols",          "run.tf32",
                          "model.value_dim",      "model.rotary_base",     "model.rotary_share",
                          "model.rotary_scaling", "model.rotary_factor",   "model.rotary_length",
                          "model.rotary_slow",    "model.rotary_fast",     "model.rotary_amplitude",
                          "model.position_count", "schedule.step_at",      "schedule.factor",
                          "schedule.patience",    "schedule.threshold",    "optimizer.betas",
                          "optimizer.eps",        "model.reversible_input"});
  softmax.insert("run.cuda_graphs");
  softmax = joined(joined(softmax, unused_by_all()), sequence_keys());
  CHECK(text(unused_keys(kImages, {"model.attention=softmax", "run.device=cpu", "model.positions=axial",
                                   "model.axial_shape=[28, 28]", "model.axial_dims=[64, 192]",
                                   "schedule.kind=cosine", "optimizer.kind=sgd", "optimizer.clip_norm=1"})) ==
        text(softmax));
}

TEST_CASE("configs of speech have the expected keys without effect") {
  const Names defaults = joined(unused_by_defaults(), unused_by_all());
  const Names no_speech =
      joined({"data.downscale", "data.max_length", "data.symbols", "model.mixtures", "model.value_dim",
              "model.loss_chunks", "model.predictor_bias", "run.cuda_graphs", "distill.teacher"},
             sequence_keys());
  const Names no_recordings = {"data.max_seconds", "data.sample_rate",  "data.resample",
                               "data.channel",     "data.num_mel_bins", "data.dither"};
  const Names parts = {"data.train_part", "data.valid_part", "data.test_part"};
  const Names lexicon = {"data.lexicon", "data.unknown_words"};
  const Names augment = {"data.frequency_masks", "data.frequency_width", "data.time_masks", "data.time_width",
                         "data.time_share"};
  const Names an4 =
      joined(joined(joined(joined(joined(defaults, no_speech), no_recordings), parts), lexicon),
             {"data.phone_set", "model.hidden", "model.bidirectional", "model.subsampling_kind"});
  CHECK(text(unused_keys(kSpeech)) == text(joined(an4, augment)));
  CHECK(text(unused_keys(kSpeech, {"data.spec_augment=true", "data.cmvn=none"})) ==
        text(joined(an4, {"data.cmvn_variance"})));
  Names lstm = joined(joined(an4, augment), {"model.attention",
                                             "lora.rank",
                                             "model.heads",
                                             "model.head_dim",
                                             "model.feedforward",
                                             "model.norm",
                                             "model.activation",
                                             "model.positions",
                                             "model.recompute",
                                             "model.reversible",
                                             "model.feedforward_chunks",
                                             "model.causal",
                                             "model.max_frames",
                                             "model.kv_heads",
                                             "model.width",
                                             "model.qk_norm",
                                             "model.projection_biases",
                                             "model.out_bias",
                                             "model.gated_feedforward",
                                             "model.feedforward_biases",
                                             "model.norm_kind",
                                             "model.norm_eps",
                                             "model.norm_offset",
                                             "model.parallel_residual"});
  for (const char* key : {"model.hidden", "model.bidirectional"}) lstm.erase(key);
  CHECK(text(unused_keys(kLstm)) == text(lstm));

  Names kaldi = joined(joined(joined(defaults, no_speech), augment),
                       {"data.phone_set", "data.unknown_words", "model.hidden", "model.bidirectional",
                        "model.subsampling_kind"});
  CHECK(text(unused_keys(kSpeech, {"data.dataset=kaldi", "data.path=/corpus"})) == text(kaldi));
  kaldi.erase("data.unknown_words");
  CHECK(text(unused_keys(kSpeech, {"data.dataset=kaldi", "data.path=/corpus", "data.lexicon=/words"})) ==
        text(kaldi));
}

TEST_CASE("model.dropout is an error for an LSTM of one layer, which has no dropout") {
  CHECK(set_error(kLstm, {"model.layers=2", "model.dropout=0.3"}).empty());
  const std::string reason = "belongs to Transformers and LSTMs of several layers, and model.layers is 1";
  for (const std::string set : {"model.dropout=0.3", "train.dropout_steps=2"})
    CHECK(contains(set_error(kLstm, {"model.layers=1", set}), reason));
  CHECK(set_error(kSpeech, {"model.layers=1", "model.dropout=0.3"}).empty());
}

TEST_CASE(
    "eval does not write to a folder of an untrusted config: only training reads data.feature_cache from "
    "files") {
  const TempFolder folder;
  const auto path = folder.write("a.toml", "[data]\nfeature_cache = \"/cache\"\n" + kSpeech.substr(7));
  const ConfigLoadOptions checkpoint{.unused_key_policy = UnusedKeyPolicy::ignore_in_file,
                                     .purpose = ConfigPurpose::evaluation};
  CHECK(load_with(path).data.get<std::string>("feature_cache") == "/cache");
  CHECK(load_with(path, {}, checkpoint).data.get<std::string>("feature_cache").empty());
  CHECK(load_with(path, {"data.feature_cache=/cache"}, checkpoint).data.get<std::string>("feature_cache") ==
        "/cache");
}

TEST_CASE("a key of the file that has an effect through --set is allowed") {
  const TempFolder folder;
  const auto path = folder.write("a.toml", kImages + "[schedule]\npatience = 3\n");
  CHECK(find_config_error(path, {}) != "");
  CHECK(format_config_value(load_with(path, {"schedule.kind=plateau", "train.eval_every=1"}),
                            "schedule.patience") == "3");
}

TEST_CASE("the error for model.attention_dropout says why a kind does not have it") {
  const TempFolder folder;
  const std::string path = folder.write("a.toml", kImages);
  const auto error = [&](const std::string& attention) {
    return message_of<ConfigError>([&] {
      load_config(path, {"model.attention=" + attention, "model.attention_dropout=0.1"});
    });
  };
  const std::string text = error("[\"softmax\",\"linear\"]");
  CHECK(
      text.ends_with("belongs to models whose attention kinds all have dropout of attention weights, and "
                     "model.attention is [\"softmax\", \"linear\"] (\"linear\" has no dropout of attention "
                     "weights: it computes no "
                     "attention weights)"));
  CHECK(error("[\"softmax\",\"local\"]").empty());
}

TEST_CASE(
    "data sets can have different defaults for a key, and keep a value that is the default of another") {
  const std::vector<SchemaKey> schema = make_config_schema();
  const auto key = std::find_if(schema.begin(), schema.end(),
                                [](const SchemaKey& k) { return k.name() == "data.tokenizer"; });
  REQUIRE(key != schema.end());
  Config config;
  config.data.dataset = "text";
  CHECK(key->get(config) == OptionValue(std::string("bytes")));
  key->set(config, std::string("bytes"));
  CHECK(key->is_default(config));
  config.data.dataset = "translation";
  CHECK_FALSE(key->is_default(config));
  CHECK(config.data.get<std::string>("tokenizer") == "bytes");
  key->reset(config);
  CHECK(key->get(config) == OptionValue(std::string("sentencepiece")));
  CHECK(config.data.options == OptionValues());
}
