// "Efficient Transformers: A Survey" (Tay et al. 2020): the attention kinds of its table 1 with one small
// model and one recipe. Row KIND trains a classifier on ListOps, and row KIND-mnist trains an autoregressive
// model on MNIST.
#include "models/attention/attention.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

// An attention kind with options for sequences of 128 tokens or more. `published` is its accuracy on ListOps
// in percent in the table of "Long Range Arena" (Tay et al. 2020), or 0 if the table has no such row.
struct SurveyKind {
  const char* name;
  std::vector<std::string> settings;
  double published = 0;
  bool only_images = false;  // whether the kind attends to rows and columns of images
};

std::vector<SurveyKind> survey_kinds() {
  return {{"softmax", {"model.attention=softmax"}, 36.37},
          {"linear", {"model.attention=linear"}, 16.13},
          {"performer", {"model.attention=performer", "attention.features=64"}, 18.01},
          {"linformer", {"model.attention=linformer", "attention.rank=32"}, 35.70},
          {"isab", {"model.attention=isab"}},
          {"lsh", {"model.attention=lsh", "attention.chunk_length=16", "attention.rounds=2"}, 37.27},
          {"sinkhorn", {"model.attention=sinkhorn", "attention.block=16"}, 33.67},
          {"synthesizer", {"model.attention=synthesizer"}, 36.99},
          {"memory-compressed", {"model.attention=memory-compressed"}},
          {"local", {"model.attention=local", "attention.window=32"}, 15.82},
          {"image", {"model.attention=image", "attention.block=32", "attention.memory=16"}},
          {"sparse-strided", {"model.attention=sparse", "attention.form=strided", "attention.stride=16"}},
          {"sparse-fixed",
           {"model.attention=sparse", "attention.form=fixed", "attention.stride=16", "attention.summary=4"},
           17.07},
          {"longformer", {"model.attention=longformer", "attention.window=32"}, 35.63},
          {"big-bird", {"model.attention=big-bird", "attention.block=16"}, 36.05},
          {"routing", {"model.attention=routing", "attention.clusters=4", "attention.local_window=32"}},
          {"transformer-xl", {"model.attention=transformer-xl", "attention.memory=0"}},
          {"axial",
           {R"(model.attention=["axial-row", "axial-column", "local", "local"])",
            "attention.axial-row.image_width=28", "attention.axial-column.image_width=28",
            "attention.local.window=56"},
           0,
           true},
          {"etc",
           {"model.attention=etc", "attention.radius=16", "attention.global_tokens=8",
            "model.summary_tokens=8"}}};
}

const AttentionCapabilities& capabilities_of(const SurveyKind& row) {
  const std::string name = row.settings.front().substr(std::string("model.attention=").size());
  return attention_kind(row.only_images ? "axial-row" : name).capabilities;
}

std::vector<std::string> survey_notes() {
  return {
      "The models of the Long Range Arena have other sizes and recipes, and some of their kinds of "
      "attention differ from the papers. Compare accuracies only with the row softmax of this table.",
      "Kinds without length masks have no row on ListOps, and kinds without a causal form have no row "
      "on MNIST. axial attends to rows and columns of images.",
      "The sequences are single segments, so transformer-xl has no memory. Without memories, "
      "compressive "
      "equals transformer-xl and has no row.",
      "Time and memory are measured for attention alone, forward and backward, and causal if the kind "
      "supports it. The exponents are fitted to the longer half of the lengths."};
}

Table survey_table(const ReproductionOptions& options) {
  const std::vector<std::string> smoke = {"train.steps=10", "data.eval_limit=50"};
  const std::vector<std::string> small = {"train.steps=5000", "train.eval_every=1000", "data.eval_limit=0"};
  const std::vector<std::string> paper = {
      "data.min_length=500",    "data.max_length=2000", "data.eval_limit=0",
      "model.layers=4",         "model.heads=8",        "model.head_dim=64",
      "model.feedforward=1024", "train.steps=5000",     "train.eval_every=1000"};
  const std::vector<std::string> smoke_images = {"train.steps=3", "data.eval_limit=10"};
  const int64_t shortest = options.measured("shortest", 256, 512, 512),
                longest = options.measured("longest", 1024, 16384, 16384);
  const Words lengths = {"bench",      "attention",
                         "--config",   "{config}",
                         "--shortest", std::to_string(shortest),
                         "--longest",  std::to_string(longest),
                         "--repeats",  std::to_string(options.measured("repeats", 1, 3, 5))};
  Table table{.title = "Attention kinds of the survey: ListOps, MNIST, time and memory",
              .source =
                  "\"Efficient Transformers: A Survey\", table 1, lists the kinds without measurements. The "
                  "published "
                  "values are accuracies on ListOps in \"Long Range Arena\".",
              .notes = survey_notes(),
              .reference = "Long Range Arena",
              .figures = scaling_figures("Attention, forward and backward", "sequence length")};
  table.figures.push_back({"loss", "ListOps", {"training step"}, {"cross-entropy, nats", Scale::linear}});
  Measurement attention{
      .name = "attention",
      .columns = scaling_columns(doubling("longest", shortest, longest)),
      .commands = {lengths},
      .read = [](const std::vector<Json>& outputs,
                 const Trial& trial) { return scaling_results(outputs[0]["lengths"], trial.row.name); },
      .first_seed_only = true};
  Measurement listops = test_evaluation("listops", {test_accuracy()});
  Measurement curve = training_curve("loss"), mnist = test_evaluation("mnist", {bits_per_dim()});
  for (const SurveyKind& kind : survey_kinds()) {
    if (!capabilities_of(kind).length_masks || kind.only_images) continue;
    table.rows.push_back({.name = kind.name,
                          .config = "listops/base.toml",
                          .defaults = options.by_scale(smoke, small, paper),
                          .fixed = kind.settings});
    if (kind.published > 0) table.rows.back().paper = {{test_accuracy().column.name, kind.published}};
    for (Measurement* measurement : {&attention, &listops, &curve}) measurement->rows.push_back(kind.name);
  }
  for (const SurveyKind& kind : survey_kinds()) {
    if (!capabilities_of(kind).causal) continue;
    table.rows.push_back({.name = kind.name + std::string("-mnist"),
                          .config = "mnist/small.toml",
                          .defaults = options.by_scale(smoke_images, {}, {}),
                          .fixed = kind.settings});
    mnist.rows.push_back(table.rows.back().name);
  }
  table.measurements = {listops, mnist, attention, curve};
  return table;
}

}  // namespace

Reproduction survey_table_reproduction() {
  return {
      .name = "survey-table",
      .summary =
          "the survey's attention kinds: accuracy on ListOps, bits/dim on MNIST, time and memory by length",
      .table = survey_table,
      .measure = {size_option("shortest", "smallest length"), size_option("longest", "largest length"),
                  size_option("repeats", "repeats for the median")},
      .config_keys = training_keys(),
      .own_keys = {"model.attention", "attention", "data.dataset"}};
}

}  // namespace tapeformer
