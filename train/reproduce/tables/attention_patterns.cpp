// Pictures of the attention weights of different attention kinds. The sequences are short, so that individual
// weights are visible. The attention kinds are described in "Efficient Transformers: A Survey" (Tay et al.
// 2020), section 3.
#include "core/base/errors.h"
#include "train/bench/bench.h"
#include "train/reproduce/commands.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

// A picture of the weights of one attention kind. The options suit 64 tokens, or images of 8 x 8 tokens.
struct Pattern {
  std::string name;
  std::string kind;
  std::vector<std::string> options;
};

std::vector<Pattern> patterns() {
  return {
      {"softmax", "softmax", {}},
      {"linear", "linear", {}},
      // Without a norm and a gate, results are weighted sums of values.
      {"gated-linear", "gated-linear", {"preset=retnet", "output_norm=none", "output_gate=none"}},
      {"gated-delta", "gated-delta", {"output_norm=none", "output_gate=none"}},
      {"performer", "performer", {}},
      {"synthesizer", "synthesizer", {}},
      {"isab", "isab", {}},
      {"linformer", "linformer", {"rank=8"}},
      {"memory-compressed", "memory-compressed", {"factor=4"}},
      {"local", "local", {"window=8"}},
      {"local-blocks", "local", {"form=blocks", "window=8"}},
      {"image-1d", "image", {"block=16", "memory=8"}},
      {"image-2d",
       "image",
       {"form=2d", "image_width=8", "block_rows=4", "block_columns=4", "memory_rows=2", "memory_columns=2"}},
      {"axial-row", "axial-row", {"image_width=8"}},
      {"axial-column", "axial-column", {"image_width=8"}},
      {"sparse-strided", "sparse", {"form=strided", "stride=8"}},
      {"sparse-fixed", "sparse", {"form=fixed", "stride=8", "summary=2"}},
      {"longformer", "longformer", {"window=8", "global_tokens=2"}},
      {"longformer-dilated", "longformer", {"window=8", "dilation=2", "global_tokens=0"}},
      {"big-bird", "big-bird", {"block=4", "random_blocks=2"}},
      {"etc", "etc", {"radius=4", "global_tokens=8"}},
      {"sinkhorn", "sinkhorn", {"block=8"}},
      {"routing", "routing", {"clusters=8", "local_share=0"}},
      {"lsh", "lsh", {"chunk_length=8", "rounds=1"}}};
}

Row make_row(const Pattern& pattern) {
  Row row{.name = pattern.name,
          .fixed_settings = {"model.type=sequence", "data.dataset=copy", "train.steps=1",
                             "model.attention=" + pattern.kind}};
  for (const std::string& option : pattern.options) row.fixed_settings.push_back("attention." + option);
  return row;
}

Table make_attention_patterns_table(const ReproductionOptions& options) {
  const int64_t length = options.select_size("length", 64, 64, 64);
  Table table{
      .title = concat_text("Attention weights of one head with ", length, " tokens"),
      .source = "The survey \"Efficient Transformers\" describes the patterns.",
      .notes =
          {"A picture has a row for each query and a column for each key. The largest weight of a row is "
           "black, and weight 0 is white.",
           "Queries and keys are random. The kind has its initial parameters."},
      .needs_training = false,
      .rows = {},
      .measurements = {{.name = "pattern",
                        .columns = {{"keys_per_query", "keys per query", 1},
                                    {"share_of_pairs", "share of pairs", 3}},
                        .commands = {{"bench", "attention-pattern", "--config", "{config}", "--length",
                                      std::to_string(length), "--out", "{file}.png"}},
                        .read_results =
                            [](const std::vector<Json>& outputs, const Trial& trial) {
                              const Json& output = outputs[0];
                              return MeasurementResults{
                                  .values = {{"keys_per_query", output["keys_per_query"].get<double>()},
                                             {"share_of_pairs", output["share_of_pairs"].get<double>()}},
                                  .pictures = {make_run_name(trial.row, trial.config.run.seed) + ".png"}};
                            },
                        .measures_first_seed_only = true}},
      .figures = {}};
  for (const Pattern& pattern : patterns()) table.rows.push_back(make_row(pattern));
  return table;
}

}  // namespace

Reproduction make_attention_patterns_reproduction() {
  return {.name = "attention-patterns",
          .summary = "pictures of the attention weights of the kinds (survey)",
          .make_table = make_attention_patterns_table,
          .measurement_options = {make_size_option("length", "number of tokens", kMaxAttentionPatternLength)},
          .config_keys = {}};
}

}  // namespace tapeformer
