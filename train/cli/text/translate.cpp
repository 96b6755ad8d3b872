// The command "tapeformer translate": translates the lines of a text.
#include <unistd.h>

#include <iostream>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/text/unknown_tokens.h"
#include "train/cli/commands.h"
#include "train/cli/keep_results.h"
#include "train/cli/run_options.h"
#include "train/cli/text/line_input.h"
#include "train/loop/progress.h"
#include "train/tasks/translation/task.h"
#include "train/tasks/translation/translator.h"

namespace tapeformer {
namespace {

// Prints translations.
class TranslationPrinter {
 public:
  TranslationPrinter(bool n_best, bool scores, bool json) : n_best_(n_best), scores_(scores), json_(json) {}

  void print(const std::vector<std::vector<TranslatedText>>& translations) {
    std::string block;
    for (const auto& hypotheses : translations) {
      for (const TranslatedText& one : hypotheses) unknown_count_ += one.unknown_count;
      if (json_)
        add_row(hypotheses);
      else
        for (const TranslatedText& one : hypotheses) block += format(one);
      ++number_;
    }
    if (!json_) print_generated_text(block);
  }
  int64_t count_unknown_tokens() const { return unknown_count_; }
  Report report(const Translator& translator) const {
    Report report = Report().add("lines", number_);
    for (const auto& [name, count] : {std::pair{"unknown_tokens", unknown_count_},
                                      {"unknown_source_tokens", translator.counts().unknown_tokens},
                                      {"left_out_characters", translator.counts().left_out_characters}})
      if (count > 0) report.add(name, count);
    return report.add("translations", rows_);
  }

 private:
  // A line of the n-best format of Marian and Moses, or a translation with or without its score.
  std::string format(const TranslatedText& one) const {
    char numbers[96];
    if (n_best_) {
      std::snprintf(numbers, sizeof numbers, " ||| F0= %.6f ||| %.6f\n", one.log_probability, one.score);
      return concat_text(number_, " ||| ", one.text, numbers);
    }
    if (!scores_) return one.text + "\n";
    std::snprintf(numbers, sizeof numbers, "%.4f\t%.4f\t", one.score, one.log_probability);
    return numbers + one.text + "\n";
  }
  void add_row(const std::vector<TranslatedText>& hypotheses) {
    std::vector<Report> rows;
    for (const TranslatedText& one : hypotheses) {
      rows.push_back(Report()
                         .add("text", one.text)
                         .add("score", one.score)
                         .add("log_probability", one.log_probability)
                         .add("tokens", one.token_count)
                         .add("complete", one.is_complete));
      if (one.unknown_count > 0) rows.back().add("unknown_tokens", one.unknown_count);
    }
    rows_.push_back(
        Report().add("line", number_ + 1).add("cut", hypotheses.front().is_cut).add("hypotheses", rows));
  }

  bool n_best_, scores_, json_;
  int64_t number_ = 0;         // of lines printed; Marian counts from 0
  int64_t unknown_count_ = 0;  // of the tokens printed
  std::vector<Report> rows_;
};

TranslatorOptions make_translator_options(const CommandLine& line) {
  const OptionValues& o = line.options;
  TranslatorOptions options;
  options.search = {.beam_size = o.get<int64_t>("beam"),
                    .length_penalty = o.get<double>("length-penalty"),
                    .hypotheses = std::max<int64_t>(o.get<int64_t>("n-best"), 1),
                    .max_length = o.get<int64_t>("max-length")};
  options.batch_tokens = o.get<int64_t>("batch-tokens");
  if (o.get<bool>("greedy")) {
    if (is_given(line, "beam")) throw ConfigError("--greedy excludes --beam");
    options.search.beam_size = 1;
  }
  if (options.search.hypotheses > options.search.beam_size)
    throw ConfigError(concat_text("--n-best ", options.search.hypotheses, ": expected at most the beam, ",
                                  options.search.beam_size));
  if (is_given(line, "n-best") && o.get<bool>("scores"))
    throw ConfigError("--scores is for single translations: the lines of --n-best have scores");
  return options;
}

void warn_about_lines(const Translator& translator, const TranslationPrinter& printer,
                      const TranslationModel& model) {
  const Translator::LineCounts& counts = translator.counts();
  if (counts.cut_lines > 0)
    log_warning("lines with more than ", describe_sentence_limit(model),
                ", whose ends are not translated: ", counts.cut_lines, ", the first is line ",
                counts.first_cut_line);
  if (counts.left_out_characters > 0)
    log_warning("left out characters, which are not in the vocabulary: ", counts.left_out_characters);
  warn_of_unknown_characters(counts.unknown_tokens, "the lines");
  warn_of_unknown_text(printer.count_unknown_tokens(), "the translations");
}

}  // namespace

CommandSpec make_translate_spec(const Arguments& /*words*/) {
  return {
      .summary = "Translates each line of a text.",
      .positionals = {make_run_argument(),
                      {.name = "FILE",
                       .help = "a text, plain or compressed; -, the default: standard input",
                       .is_required = false}},
      .options = {make_checkpoint_option(),
                  {.name = "beam",
                   .default_value = int64_t{4},
                   .help = "hypotheses of the beam search",
                   .min = 1,
                   .max = kMaxBeamSize},
                  {.name = "greedy", .default_value = false, .help = "the same as --beam 1"},
                  {.name = "length-penalty",
                   .default_value = 0.6,
                   .help = "alpha of the length penalty ((5 + tokens) / 6)^alpha of GNMT, by which the "
                           "log-probability of a hypothesis is divided",
                   .min = 0,
                   .max = 10},
                  {.name = "n-best",
                   .default_value = int64_t{0},
                   .help = "print this number of hypotheses, complete ones first, as \"LINE ||| TEXT ||| F0= "
                           "LOG-PROBABILITY ||| "
                           "SCORE\", where LINE counts from 0; 0: only the best text",
                   .min = 0,
                   .max = kMaxBeamSize},
                  {.name = "max-length",
                   .default_value = int64_t{0},
                   .help = "maximum number of tokens of a translation, with the end token; 0: those of the "
                           "source and 50",
                   .min = 0,
                   .max = 1 << 20},
                  {.name = "batch-tokens",
                   .default_value = int64_t{512},
                   .help = "number of source tokens that are decoded together, with padding",
                   .min = 1,
                   .max = 1 << 24},
                  {.name = "scores",
                   .default_value = false,
                   .help = "print the score and the log-probability before each translation"}},
      .details =
          "Translations have the order of the lines, and an empty line has an empty translation. A\n"
          "result does not depend on the other lines, up to rounding. Log-probabilities are in nats.\n"
          "Lines of standard input and of pipes are translated when no further lines are waiting.",
      .uses_config = true};
}

int run_translate(const CommandLine& line) {
  const TranslatorOptions options = make_translator_options(line);
  LineInput input(line.positionals.size() > 1 ? line.positionals[1] : kStandardInputName);
  const LoadedTask run = load_task(line, ConfigPurpose::generation);
  require_subject(*run.task, {"translations"}, "\"translate\"");
  const auto& task = run.as<TranslationTask>();
  if (const int64_t limit = task.model().options().max_length; options.search.max_length > limit)
    throw ConfigError(concat_text("--max-length ", options.search.max_length,
                                  ": this model translates at most ", limit,
                                  " tokens, twice data.max_length and one"));
  Translator translator(task.model(), task.tokenizer(), options);
  const CommonOptions& common = line.common_options;
  TranslationPrinter printer(is_given(line, "n-best") && line.options.get<int64_t>("n-best") > 0,
                             line.options.get<bool>("scores"), common.json);
  const bool shows_progress =
      choose_progress_style(common.quiet) == ProgressStyle::terminal && isatty(STDOUT_FILENO) == 0;
  int64_t before = 0;
  const auto show = [&](int64_t finished) {
    if (shows_progress) std::cerr << "\rtranslated " << before + finished << " lines" << std::flush;
  };
  const auto translate_lines = [&] {
    for (auto lines = input.read(kBlockLines); !lines.empty(); lines = input.read(kBlockLines)) {
      printer.print(translator.translate(lines, show));
      before += static_cast<int64_t>(lines.size());
    }
  };
  const auto finish = [&] {
    if (shows_progress && before > 0) std::cerr << "\n";
    warn_about_lines(translator, printer, task.model());
    if (common.json)
      print_report(printer.report(translator).add("checkpoint", run.checkpoint_folder.string()), common);
  };
  run_and_keep_results(
      common, translate_lines, [&] { return before; }, finish);
  return 0;
}

}  // namespace tapeformer
