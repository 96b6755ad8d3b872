// The command "tapeformer score". For each line of a text, it prints -log2 of the probability that a language
// model assigns to the line. For a translation model, it prints the log-probabilities of given translations.
#include <algorithm>
#include <iterator>
#include <memory>
#include <numbers>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "data/text/unknown_tokens.h"
#include "train/build.h"
#include "train/cli/commands.h"
#include "train/cli/keep_results.h"
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
    const TextScore score = scorer_.score(line, concat_text(name_, ":", number_ + 1));
    ++number_;
    total_.add(score);
    print(score, line);
  }

  int64_t number() const { return number_; }  // of lines scored
  void warn() const { warn_of_unknown_characters(total_.unknown_count, "the lines"); }
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

template <class Printer>
void finish(const Printer& printer, const CommonOptions& options) {
  printer.warn();
  if (options.json) print_report(printer.report(), options);
}

// Returns the contents of a plain or compressed file.
std::string read_text(const std::string& path) {
  const TextSource source({path});
  std::string text(static_cast<size_t>(source.size()), '\0');
  source.read(0, source.size(), reinterpret_cast<uint8_t*>(text.data()));
  return text;
}

void score_file(const std::string& path, const Tokenizer& tokenizer, LineScorePrinter& printer) {
  const std::string contents = prepare_text(read_text(path), path, tokenizer);
  for (std::string_view text = contents; !text.empty();) {
    const size_t end = std::min(text.find('\n'), text.size());
    printer.add(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void score_stream(InputStream& stream, const Tokenizer& tokenizer, LineScorePrinter& printer) {
  bool is_checked = false;
  while (const auto line = stream.read_line()) {
    if (!is_checked && !stream.encoding().is_utf8()) {
      check_encoding(stream.encoding(), stream.name(), tokenizer);
      is_checked = true;
    }
    printer.add(*line);
  }
}

void score_text(const LoadedTask& run, const CommandLine& line) {
  if (line.positionals.size() > 2) throw ConfigError("TARGET is for translation models");
  const auto& task = run.as<AutoregressiveTask>();
  const std::string& path = line.positionals[1];
  std::unique_ptr<InputStream> stream;
  if (InputStream::is_named_by(path)) stream = std::make_unique<InputStream>(path, LineScorer::kMaxLineBytes);
  LineScorePrinter printer(task, stream ? stream->name() : path, line.common_options.json);
  const auto score = [&] {
    stream ? score_stream(*stream, *task.tokenizer(), printer) : score_file(path, *task.tokenizer(), printer);
  };
  run_and_keep_results(
      line.common_options, score, [&] { return printer.number(); },
      [&] { finish(printer, line.common_options); });
}

// Prints or collects the scores of given translations.
class PairScorePrinter {
 public:
  // `names` are the names of the sources and of the targets in messages.
  PairScorePrinter(const TranslationTask& task, std::pair<std::string, std::string> names, bool json)
      : task_(task), names_(std::move(names)), json_(json) {}

  void add(const std::vector<std::string>& sources, const std::vector<std::string>& targets) {
    const auto scores =
        score_targets(task_.model(), *task_.tokenizer(), sources, targets, names_, number_ + 1);
    std::string text;
    for (size_t i = 0; i < scores.size(); ++i) {
      add(scores[i]);
      const double log_probability = scores[i].log_probability;
      char numbers[64];
      std::snprintf(numbers, sizeof numbers, "%.4f\t%.4f\t", log_probability,
                    log_probability / static_cast<double>(scores[i].token_count));
      text += numbers + targets[i] + "\n";
    }
    if (!json_) print_generated_text(text);
  }
  int64_t number() const { return number_; }

  void warn() const {
    if (cut_count_ > 0)
      log_warning("pairs with a sentence of more than ", describe_sentence_limit(task_.model()),
                  ", whose end is not scored: ", cut_count_, ", the first is line ", first_cut_);
    warn_of_unknown_characters(source_unknown_count_, "the sources");
    warn_of_unknown_characters(unknown_count_, "the translations");
  }
  Report report() const {
    Report report;
    report.add("lines", number_).add("tokens", token_count_);
    if (unknown_count_ > 0) report.add("unknown_tokens", unknown_count_);
    if (source_unknown_count_ > 0) report.add("unknown_source_tokens", source_unknown_count_);
    return report.add("log_probability", log_probability_)
        .add("nats_per_token", -log_probability_ / static_cast<double>(token_count_))
        .add("scores", rows_);
  }

 private:
  void add(const ScoredTarget& score) {
    ++number_;
    log_probability_ += score.log_probability;
    token_count_ += score.token_count;
    unknown_count_ += score.target_unknown_count;
    source_unknown_count_ += score.source_unknown_count;
    if (score.is_cut && cut_count_++ == 0) first_cut_ = number_;
    if (json_)
      rows_.push_back(Report()
                          .add("line", number_)
                          .add("log_probability", score.log_probability)
                          .add("tokens", score.token_count)
                          .add("cut", score.is_cut));
  }

  const TranslationTask& task_;
  std::pair<std::string, std::string> names_;
  bool json_;
  int64_t number_ = 0, token_count_ = 0, unknown_count_ = 0, source_unknown_count_ = 0;
  int64_t cut_count_ = 0, first_cut_ = 0;
  double log_probability_ = 0;
  std::vector<Report> rows_;
};

[[noreturn]] void refuse_line_counts(const LineInput& target, int64_t target_lines, const LineInput& source,
                                     const std::string& source_lines) {
  throw DataError(concat_text(target.name(), ": the file has ", target_lines, " lines, but ", source.name(),
                              " has ", source_lines));
}

// Returns the next `count` lines, or all that are left. Waits for lines of a stream.
std::vector<std::string> read_all(LineInput& input, size_t count) {
  std::vector<std::string> lines;
  while (lines.size() < count) {
    auto next = input.read(count - lines.size());
    if (next.empty()) break;
    std::move(next.begin(), next.end(), std::back_inserter(lines));
  }
  return lines;
}

void score_pairs(LineInput& source, LineInput& target, PairScorePrinter& printer) {
  if (source.size() && target.size() && *source.size() != *target.size())
    refuse_line_counts(target, *target.size(), source, std::to_string(*source.size()));
  for (auto sources = source.read(kBlockLines); !sources.empty(); sources = source.read(kBlockLines)) {
    const auto targets = read_all(target, sources.size());
    if (targets.size() < sources.size())
      refuse_line_counts(target, printer.number() + static_cast<int64_t>(targets.size()), source, "more");
    printer.add(sources, targets);
  }
  int64_t target_lines = printer.number();
  for (auto more = target.read(kBlockLines); !more.empty(); more = target.read(kBlockLines))
    target_lines += static_cast<int64_t>(more.size());
  if (target_lines != printer.number())
    refuse_line_counts(target, target_lines, source, std::to_string(printer.number()));
}

void score_translations(const LoadedTask& run, const CommandLine& line) {
  if (line.positionals.size() < 3)
    throw ConfigError("a translation model scores pairs: give TARGET, translations of the lines");
  if (line.positionals[2] == kStandardInputName) throw ConfigError("only FILE can be \"-\", standard input");
  LineInput source(line.positionals[1]), target(line.positionals[2]);
  PairScorePrinter printer(run.as<TranslationTask>(), {source.name(), target.name()},
                           line.common_options.json);
  run_and_keep_results(
      line.common_options, [&] { score_pairs(source, target, printer); }, [&] { return printer.number(); },
      [&] { finish(printer, line.common_options); });
}

}  // namespace

CommandSpec make_score_spec(const Arguments& /*words*/) {
  return {.summary =
              "Prints the bits, the bits per byte and the text of each line of a file, or the\n"
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
              "tokens and the end, and the translation.\n"
              "Lines of standard input and of pipes are scored when no further lines are waiting.",
          .uses_config = true};
}

int run_score(const CommandLine& line) {
  const LoadedTask run = load_task(line, ConfigPurpose::generation);
  run_form("score", {{{"text"}, score_text}, {{"translations"}, score_translations}}, run, line);
  return 0;
}

}  // namespace tapeformer
