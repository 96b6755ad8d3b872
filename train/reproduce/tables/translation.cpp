// Translation: BLEU of encoder-decoder models with several kinds of attention, as in "Reformer" (Kitaev et
// al. 2020), table 4. The scale small trains on Tatoeba and, for long sequences, on chapters of the Bible.
#include "train/metrics.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

using TranslationSettings = std::vector<std::string>;

struct TranslationRow {
  const char *name, *config;
  TranslationSettings settings;
  NamedValues paper = {};
};

// To add a line to the table, add a row here. The published values are BLEU on WMT'14 English-German: softmax
// from Vaswani et al. 2017 (base), reversible from "Reformer", table 4 (100,000 steps), linear from "Random
// feature attention" (Peng et al. 2021).
const std::vector<TranslationRow> kSmallRows = {
    {"softmax", "tatoeba", {"model.attention=softmax"}, {{"bleu", 27.3}}},
    {"softmax-conv", "tatoeba", {"model.attention=softmax", "attention.conv=4"}},
    {"reversible", "tatoeba", {"model.attention=softmax", "model.reversible=true"}, {{"bleu", 27.6}}},
    {"linear-softmax", "tatoeba", {"model.attention=linear"}},
    {"linear", "tatoeba", {"model.attention=linear", "model.cross_attention=linear"}, {{"bleu", 21.3}}},
    // Narrower feed-forward blocks, because the layers have more projections.
    {"gated-delta", "tatoeba", {"model.attention=gated-delta", "model.feedforward=344"}},
    {"softmax-chapters", "bible-chapters", {"model.attention=softmax"}},
    {"reversible-chapters", "bible-chapters", {"model.attention=softmax", "model.reversible=true"}},
    {"lsh-chapters",
     "bible-chapters",
     {"model.attention=lsh", "attention.chunk_length=32", "attention.rounds=2"}}};
const std::vector<TranslationRow> kPaperRows = {
    {"base", "wmt14-base", {}, {{"bleu", 27.6}, {"bleu_intl", 26.9}}},
    {"base-unshared", "wmt14-base-unshared", {}, {{"bleu", 28.0}, {"bleu_intl", 27.4}}},
    {"big", "wmt14-big", {}, {{"bleu", 29.1}, {"bleu_intl", 28.4}}}};

// Chapters are evaluated on a few, because LSH attention repeats its prefix for each token of a translation.
TranslationSettings list_scale_settings(TableScale scale, const TranslationRow& row) {
  switch (scale) {
    case TableScale::smoke:
      return {"train.steps=20",       "data.limit=300", "data.eval_limit=20",
              "data.vocabulary=1000", "model.layers=1", "model.feedforward=64"};
    case TableScale::small:
      if (std::string_view(row.config) == "bible-chapters") return {"train.steps=1200", "data.eval_limit=12"};
      return {"train.steps=3000", "train.eval_every=1000"};
    case TableScale::paper:
      return {};
  }
  return {};
}

// The peak memory of training before the first evaluation, in MiB, and the BLEU of the evaluations.
Measurement make_metrics_measurement() {
  return {.name = "metrics",
          .columns = {{.name = "training_mebibytes", .label = "training, MiB", .decimal_places = 0}},
          .read_results = [](const std::vector<Json>&, const Trial& trial) {
            double bytes = 0;
            Curve curve{"bleu", trial.row.name, {}};
            for (const MetricRecord& record : read_metrics(trial.run_dir + "/" + kMetricsFileName))
              if (get_metric_text(record, "split") != "train")
                curve.points.emplace_back(get_metric_number(record, "step", 0),
                                          get_metric_number(record, "bleu", 0));
              else if (curve.points.empty())
                bytes = get_metric_number(record, "memory_bytes", 0);
            return MeasurementResults{.values = {{"training_mebibytes", bytes / kBytesPerMebibyte}},
                                      .curves = {curve}};
          }};
}

Table make_translation_table(const ReproductionOptions& options) {
  const auto& rows = options.scale == TableScale::paper ? kPaperRows : kSmallRows;
  Table table{
      .title = "Translation",
      .source = "\"Reformer\", table 4, and other papers: BLEU on WMT'14 English-German, 4.5 million pairs.",
      .notes =
          {"At the scales smoke and small, the data are 163,000 pairs of short sentences of Tatoeba, English "
           "to German, and for the rows with chapters 1,108 chapters of the Bible, English to Spanish. BLEU "
           "of different data is not comparable.",
           "The paper's reversible models without weight sharing have 28.0 (base, 500,000 steps) and 29.1 "
           "BLEU (big). Its text gives no figures for other kinds of attention.",
           "linear-softmax: linear self-attention and softmax cross-attention. softmax-conv: with the short "
           "convolutions that gated-delta has.",
           "Beam 4, length penalty 0.6. Sentences/s include the search only."},
      .reference_label = "papers, WMT'14",
      .measurements = {make_command_measurement(
                           "test", {"eval", "{run}", "--limit", "{limit}"},
                           {{{.name = "bleu", .label = "BLEU"}, "bleu"},
                            {{.name = "bleu_intl", .label = "BLEU, intl", .is_printed = false}, "bleu_intl"},
                            {{.name = "chrf2", .label = "chrF2"}, "chrf2"},
                            {{.name = "nats_per_token", .label = "nats/token", .decimal_places = 3},
                             "nats_per_token"},
                            {{.name = "sentences_per_second",
                              .label = "sentences/s",
                              .decimal_places = 1,
                              .is_speed = true},
                             "sentences_per_second"}}),
                       make_metrics_measurement(), make_training_curve_measurement("")},
      .figures = {
          {"bleu", "Translation", {"training step"}, {"BLEU of the validation, greedy", Scale::linear}}}};
  for (const TranslationRow& row : rows)
    table.rows.push_back({.name = row.name,
                          .config_path = std::string("translation/") + row.config + ".toml",
                          .default_settings = list_scale_settings(options.scale, row),
                          .fixed_settings = row.settings,
                          .paper_values = row.paper});
  return table;
}

}  // namespace

Reproduction make_translation_table_reproduction() {
  return {.name = "translation-table",
          .summary = "Reformer, table 4: BLEU of reversible and other encoder-decoder models",
          .make_table = make_translation_table,
          .config_keys = list_training_config_tables(),
          .reserved_keys = {"model.attention", "model.cross_attention", "data.dataset"}};
}

}  // namespace tapeformer
