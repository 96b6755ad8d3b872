// The command "tapeformer bleu". It scores a file of translations against files of reference translations.
#include "core/base/errors.h"
#include "data/files/gzip.h"
#include "data/files/text_encoding.h"
#include "data/files/text_lines.h"
#include "data/translation/corpus_scorer.h"
#include "train/cli/commands.h"
#include "train/cli/text/input_stream.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxSegmentFileBytes = int64_t{1} << 31;
constexpr size_t kMaxSegmentBytes = size_t{1} << 20;  // n-grams need about 200 times this memory

// A file with one segment per line. The lines refer to the bytes.
struct SegmentFile {
  std::string name;
  Bytes bytes;
  std::vector<std::string_view> lines;
};

Bytes read_segment_bytes(const std::string& path) {
  if (!InputStream::is_named_by(path)) return read_unpacked(path, kMaxSegmentFileBytes);
  const std::string text = InputStream(path, kMaxSegmentBytes).read_all(kMaxSegmentFileBytes);
  return {text.begin(), text.end()};
}

void check_segment(std::string_view line, const std::string& location) {
  require_utf8(line, location);
  if (line.size() > kMaxSegmentBytes)
    throw DataError(
        concat_text(location, ": the line has ", line.size(), " bytes, expected at most ", kMaxSegmentBytes));
}

// Reads the lines of a plain or compressed file or of a stream. Only U+000A ends a line, because sacrebleu
// opens files in this way.
SegmentFile read_segments(const std::string& path) {
  SegmentFile file{path == "-" ? "standard input" : path, read_segment_bytes(path), {}};
  std::string_view text = view_as_text(file.bytes, file.bytes.size());
  if (text.empty()) throw DataError(file.name + ": no text: the size is 0 bytes");
  if (const TextEncoding encoding = detect_text_encoding(text); !encoding.is_utf8())
    throw DataError(file.name + ": " + describe_encoding_problem(encoding));
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size());
    file.lines.push_back(text.substr(0, size));
    check_segment(file.lines.back(), concat_text(file.name, ":", file.lines.size()));
    text.remove_prefix(std::min(size + 1, text.size()));
  }
  return file;
}

std::vector<SegmentFile> read_references(const std::vector<std::string>& paths,
                                         const SegmentFile& hypothesis) {
  std::vector<SegmentFile> references;
  for (const std::string& path : paths) {
    if (path == "-") throw ConfigError("only HYPOTHESIS can be \"-\", standard input");
    references.push_back(read_segments(path));
    if (references.back().lines.size() != hypothesis.lines.size())
      throw DataError(concat_text(path, ": the file has ", references.back().lines.size(), " lines, but ",
                                  hypothesis.name, " has ", hypothesis.lines.size()));
  }
  return references;
}

}  // namespace

CommandSpec make_bleu_spec(const Arguments& /*words*/) {
  return {
      .summary =
          "Prints BLEU and chrF2 of translations with the signatures of sacrebleu, whose scores they equal.",
      .positionals =
          {{"HYPOTHESIS", "translations, one segment per line; plain or compressed; -: standard input"},
           {.name = "REFERENCE", .help = "reference translations of the same segments", .is_repeated = true}},
      .options = {{.name = "tokenize",
                   .default_value = std::string("13a"),
                   .help = "tokens of BLEU",
                   .choices = list_bleu_tokenizers()},
                  {.name = "lowercase",
                   .default_value = false,
                   .help = "convert all texts to lower case, for BLEU and chrF2"}},
      .details =
          "BLEU has n-grams of up to 4 tokens and smoothing \"exp\". chrF2 has n-grams of up to 6\n"
          "characters and ignores white space. Texts should not be tokenized."};
}

int run_bleu(const CommandLine& line) {
  const std::vector<std::string>& paths = line.positionals;
  const SegmentFile hypothesis = read_segments(paths.front());
  const auto references = read_references({paths.begin() + 1, paths.end()}, hypothesis);
  const bool lower_case = line.options.get<bool>("lowercase");
  const BleuTokenizer tokenizer = parse_bleu_tokenizer(line.options.get<std::string>("tokenize"));
  CorpusScorer scorer({{tokenizer, lower_case}}, {lower_case}, references.size());
  for (size_t i = 0; i < hypothesis.lines.size(); ++i) {
    std::vector<std::string_view> segments;
    for (const SegmentFile& reference : references) segments.push_back(reference.lines[i]);
    scorer.add(hypothesis.lines[i], segments);
  }
  std::vector<Report> rows;
  for (const CorpusScore& score : scorer.compute()) {
    rows.push_back(Report()
                       .add("name", score.name)
                       .add("score", score.value)
                       .add("text", score.text)
                       .add("signature", score.signature));
    if (!line.common_options.json) print_text(score.text + "\n" + score.signature + "\n");
  }
  if (line.common_options.json)
    print_report(Report().add("segments", scorer.segment_count()).add("scores", rows), line.common_options);
  return 0;
}

}  // namespace tapeformer
