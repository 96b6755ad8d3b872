// "Transformers are RNNs" (Katharopoulos et al. 2020), figure 1: time and memory of attention per sequence,
// forward and backward, at doubling lengths. The rows lsh-N measure the LSH attention of this paper. Further
// rows measure the LSH attention of "Reformer" (Kitaev et al. 2020) and all other causal kinds.
#include <algorithm>

#include "core/base/errors.h"
#include "models/attention/attention.h"
#include "train/config/value.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

constexpr int64_t kSmallestMaxLength = 8;  // minimum of data.max_length

// Default time limit of one pass in seconds. kPaperPatience is the limit at the paper scale.
constexpr double kPatience = 20, kPaperPatience = 600;

Row make_row(const std::string& name, std::vector<std::string> settings) {
  settings.insert(settings.end(), {"model.type=sequence", "data.dataset=copy", "train.steps=1"});
  return {.name = name, .fixed_settings = settings};
}

std::vector<Row> rows_of() {
  std::vector<Row> rows = {make_row("softmax", {"model.attention=softmax"})};
  for (const char* rounds : {"1", "4", "8"})
    rows.push_back(make_row("lsh-" + std::string(rounds),
                            {"model.attention=lsh", "attention.preset=fast_transformers",
                             "attention.chunk_length=32", "attention.rounds=" + std::string(rounds)}));
  rows.push_back(make_row("linear", {"model.attention=linear"}));
  for (const AttentionKind& kind : list_attention_kinds()) {
    if (!kind.capabilities.causal || kind.name == "softmax" || kind.name == "linear") continue;
    std::vector<AttentionVariant> variants = kind.variants;
    if (variants.empty()) variants = {{kind.name, {}}};
    for (const AttentionVariant& variant : variants) {
      std::vector<std::string> settings = {"model.attention=" + kind.name};
      for (const auto& [key, value] : variant.options)
        settings.push_back("attention." + key + "=" + format_option_value(value));
      rows.push_back(make_row(variant.name, settings));
    }
  }
  return rows;
}

Table make_attention_scaling_table(const ReproductionOptions& options) {
  const int64_t shortest = options.select_size("shortest", 256, 512, 512),
                longest = options.select_size("longest", 1024, 65536, 65536),
                repeats = options.select_size("repeats", 1, 3, 5);
  double patience = options.measurement_options.get<double>("patience");
  if (patience == 0) patience = options.scale == TableScale::paper ? kPaperPatience : kPatience;
  const Words command = {"bench",      "attention",
                         "--config",   "{config}",
                         "--shortest", std::to_string(shortest),
                         "--longest",  std::to_string(longest),
                         "--repeats",  std::to_string(repeats),
                         "--patience", concat_text(patience)};
  Table table{
      .title = "Attention, forward and backward, per sequence",
      .source =
          "\"Transformers are RNNs\", figure 1. The paper shows curves and no figures: softmax up "
          "to 4,096 tokens, lsh-4 and lsh-8 up to 16,384 and linear up to 65,536 fit into a GTX "
          "1080 Ti.",
      .notes = {"The exponents are fitted to the longer half of the lengths.",
                concat_text("A kind skips lengths at which one pass takes more than ", patience, " s.")},
      .needs_training = false,
      .rows = rows_of(),
      .measurements = {{.name = "attention",
                        .columns = make_scaling_columns(list_doubled_lengths("longest", shortest, longest)),
                        .commands = {command},
                        .read_results =
                            [](const std::vector<Json>& outputs, const Trial& trial) {
                              return read_scaling_results(outputs[0]["lengths"], trial.row.name);
                            },
                        .measures_first_seed_only = true}},
      .figures = make_scaling_figures("Attention, forward and backward", "sequence length")};
  const std::vector<std::string> sizes = {
      "model.heads=8", "model.head_dim=64",
      concat_text("data.max_length=", std::max(longest, kSmallestMaxLength))};
  for (Row& row : table.rows) row.default_settings = sizes;
  return table;
}

}  // namespace

Reproduction make_attention_scaling_reproduction() {
  return {
      .name = "attention-scaling",
      .summary = "time and memory of attention kinds at lengths from 2^9 to 2^16 (both papers)",
      .make_table = make_attention_scaling_table,
      .measurement_options = {make_size_option("shortest", "smallest length"),
                              make_size_option("longest", "largest length"),
                              make_size_option("repeats", "repeats for the median"),
                              {.name = "patience",
                               .default_value = 0.0,
                               .help = "time limit of one pass in seconds; 0: 20, or 600 with --scale paper",
                               .min = 0}},
      .config_keys = {"model.heads", "model.head_dim", "run.precision"}};
}

}  // namespace tapeformer
