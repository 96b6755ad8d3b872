// The command "tapeformer score". For each line of a text, it prints -log2 of the probability that a language
// model assigns to the line. For a translation model, it prints the log-probabilities of given translations.
#include <algorithm>
#include <limits>
#include <numbers>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "train/build.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/cli/text/line_input.h"
#include "train/tasks/text/scoring.h"
#include "train/tasks/translation/task.h"
#include "train/tasks/translation/translator.h"

namespace tapeformer {
namespace {

// Scores the lines of a text, and prints or collects the scores.
class LineScorePrinter {
 public:
  LineScorePrinter(const AutoregressiveTask& task, std::string name, bool json)
      : scorer_(task.model(), *task.tokenizer()), name_(std::move(name)), json_(json) {}

  void add(std::string_view line) {
    const TextScore score = scorer_.score(line, concat_text(name_, ":", ++number_));
    total_.add(score);
    print(score, line);
  }

  Report report() const {
    Report report;
    report.add("lines", number_)
        .add("tokens", total_.token_count)
        .add("bytes", total_.byte_count)
        .add("bits", bits(total_))
        .add("bits_per_byte", total_.bits_per_byte())
        .add("perplexity", total_.perplexity());
    add_unknown_tokens(total_, report);
    return report.add("scores", rows_);
  }

 private:
  static double bits(const TextScore& score) { return score.nats / std::numbers::ln2; }

  void print(const TextScore& score, std::string_view line) {
    if (json_) {
      rows_.push_back(Report()
                          .add("line", number_)
                          .add("bits", bits(score))
                          .add("bytes", score.byte_count)
                          .add("bits_per_byte", score.bits_per_byte()));
      return;
    }
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%.3f\t%.4f\t", bits(score), score.bits_per_byte());
    print_text(numbers + escape_line(line) + "\n");
  }

  LineScorer scorer_;
  std::string name_;
  bool json_;
  int64_t number_ = 0;
  TextScore total_;
  std::vector<Report> rows_;
};

// Returns the contents of a stream or of a plain or compressed file.
std::string read_text(const std::string& path) {
  if (InputStream::is_named_by(path)) {
    const Bytes bytes = InputStream(path).read_all();
    return std::string(view_as_text(bytes, bytes.size()));
  }
  const TextSource source({path});
  std::string text(static_cast<size_t>(source.size()), '\0');
  source.read(0, source.size(), reinterpret_cast<uint8_t*>(text.data()));
  return text;
}

void score_lines(std::string_view text, LineScorePrinter& printer) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    printer.add(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

void score_translations(const TranslationTask& task, const CommandLine& line) {
  const std::string &source = line.positionals[1], &target = line.positionals[2];
  if (target == kStandardInputName) throw ConfigError("only FILE can be \"-\", standard input");
  const auto read_all = [](const std::string& path) {
    return LineInput(path).read(std::numeric_limits<size_t>::max());
  };
  const std::vector<std::string> sources = read_all(source), targets = read_all(target);
  if (sources.size() != targets.size())
    throw DataError(concat_text(target, ": the file has ", targets.size(), " lines, but ", source, " has ",
                                sources.size()));
  const auto scores = score_targets(task.model(), *task.tokenizer(), sources, targets);
  const auto is_cut = [](const ScoredTarget& one) { return one.is_cut; };
  if (const auto cut_count = std::count_if(scores.begin(), scores.end(), is_cut); cut_count > 0)
    log_warning(cut_count, " pairs have a sentence of more than ", describe_sentence_limit(task.model()),
                ", and its end is not scored; the first is line ",
                std::find_if(scores.begin(), scores.end(), is_cut) - scores.begin() + 1);
  std::vector<Report> rows;
  std::string text;
  double total = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double log_probability = scores[i].log_probability;
    const int64_t count = scores[i].token_count;
    total += log_probability;
    tokens += count;
    const double mean = log_probability / static_cast<double>(count);
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%.4f\t%.4f\t", log_probability, mean);
    if (line.common_options.json)
      rows.push_back(Report()
                         .add("line", static_cast<int64_t>(i) + 1)
                         .add("log_probability", log_probability)
                         .add("tokens", count)
                         .add("cut", scores[i].is_cut));
    else
      text += numbers + targets[i] + "\n";
  }
  if (!line.common_options.json) return print_generated_text(text);
  print_report(Report()
                   .add("lines", static_cast<int64_t>(scores.size()))
                   .add("tokens", tokens)
                   .add("log_probability", total)
                   .add("nats_per_token", -total / static_cast<double>(tokens))
                   .add("scores", rows),
               line.common_options);
}

}  // namespace

int run_score(const Arguments& arguments) {
  const auto line = parse_command(
      {.name = "score",
       .summary = "Prints the bits, the bits per byte and the text of each line of a file, or the\n"
                  "log-probabilities of given translations.",
       .positionals = {make_run_argument(),
                       {"FILE", "a text, plain or compressed; -: standard input"},
                       {.name = "TARGET",
                        .help = "for a translation model: translations of the lines of FILE",
                        .is_required = false}},
       .options = {make_checkpoint_option()},
       .details =
           "Lines are scored independently: the model reads a line end as context, and predicts the\n"
           "line and its end. If the vocabulary lacks line ends, the first token of a line is not\n"
           "predicted. Lines that are longer than data.sequence_length are scored in windows that\n"
           "overlap by a half. A model with a segment memory reads them in segments.\n"
           "For each pair of a translation model, prints the log-probability in nats, its mean over the\n"
           "tokens and the end, and the translation.",
       .uses_config = true},
      arguments);
  if (!line) return 0;
  const LoadedTask run = load_task(*line, ConfigPurpose::generation);
  require_subject(*run.task, {ModelSubject::text, ModelSubject::translations}, "\"score\"");
  const bool translates = run.task->subject() == ModelSubject::translations;
  if (translates != (line->positionals.size() > 2))
    throw ConfigError(translates ? "a translation model scores pairs: give TARGET, translations of the lines"
                                 : "TARGET is for translation models");
  if (translates) {
    score_translations(run.as<TranslationTask>(), *line);
    return 0;
  }
  const auto& task = run.as<AutoregressiveTask>();
  const std::string& path = line->positionals[1];
  LineScorePrinter printer(task, path, line->common_options.json);
  score_lines(prepare_text(read_text(path), path, *task.tokenizer()), printer);
  if (line->common_options.json) print_report(printer.report(), line->common_options);
  return 0;
}

}  // namespace tapeformer
