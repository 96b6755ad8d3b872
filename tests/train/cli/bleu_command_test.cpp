// Tests of `tapeformer bleu`.
#include <doctest/doctest.h>

#include "tests/data/support.h"
#include "tests/support/encoded.h"
#include "tests/train/cli/program.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Files in a temporary folder, and the command with their paths.
struct BleuFiles {
  TempDir folder;

  std::string write(const std::string& name, const std::string& text) const {
    write_file(folder / name, text);
    return (folder / name).string();
  }
  std::string error(const std::vector<std::string>& words, int code = 3) const {
    std::vector<std::string> command{"bleu"};
    command.insert(command.end(), words.begin(), words.end());
    const ProgramResult result = run_program(command);
    CHECK(result.code == code);
    CHECK(result.out.empty());
    return result.err;
  }
};

}  // namespace

TEST_CASE("bleu prints BLEU and chrF2 with their signatures") {
  const std::string references = "The cat is sitting on the mat.\nIt rained all day, said Anna.";
  const BleuFiles files;
  const std::string hypothesis =
                        files.write("h", "The cat sat on the mat.\nIt rained the whole day, said Anna.\n"),
                    reference = files.write("r", references);
  const ProgramResult result = run_program({"bleu", hypothesis, reference});
  CHECK(result.code == 0);
  // The output of `sacrebleu r -i h -m bleu chrf`.
  CHECK(result.out ==
        "BLEU = 50.55 81.2/64.3/41.7/30.0 (BP = 1.000 ratio = 1.000 hyp_len = 16 ref_len = 16)\n"
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0\n"
        "chrF2 = 61.28\n"
        "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0\n");
  CHECK(run_program({"bleu", "-", reference}, "", hypothesis).out == result.out);
  const std::string pipes = PROGRAM " bleu <(cat \"$0\") <(cat \"$1\")";
  CHECK(run_words({"bash", "-c", pipes, hypothesis, reference}).out == result.out);
  const auto packed = files.folder / "r.gz";
  write_file(packed, gzipped(Bytes(references.begin(), references.end())));
  CHECK(run_program({"bleu", hypothesis, packed.string()}).out == result.out);
}

TEST_CASE("bleu has options for the tokens and the case, several references and JSON") {
  const BleuFiles files;
  const std::string hypothesis = files.write("h", "DIE KATZE saß, „ja“.\r\n\n"),
                    first = files.write("r1", "Die Katze saß, „ja“.\n\n"),
                    second = files.write("r2", "Der Hund\nlief\n");
  const auto report = parse_json_output(
      run_program({"bleu", hypothesis, first, second, "--tokenize", "intl", "--lowercase", "--json"}));
  CHECK(report["segments"] == 2);
  CHECK(report["scores"].size() == 2);
  CHECK(report["scores"][0]["name"] == "BLEU");
  CHECK(report["scores"][0]["score"].get<double>() == doctest::Approx(100));
  CHECK(report["scores"][0]["signature"] == "nrefs:2|case:lc|eff:no|tok:intl|smooth:exp|version:2.6.0");
  CHECK(report["scores"][1]["text"] == "chrF2 = 100.00");
  CHECK(report["scores"][1]["signature"] == "nrefs:2|case:lc|eff:yes|nc:6|nw:0|space:no|version:2.6.0");
}

TEST_CASE("errors of bleu name the file, the line and both numbers of lines") {
  const BleuFiles files;
  const std::string two = files.write("two", "a\nb\n"), three = files.write("three", "a\nb\nc"),
                    empty = files.write("empty", ""), latin = files.write("latin", "a\n\xE4 b\n");
  CHECK(contains(files.error({two, two, three}), three + ": the file has 3 lines, but " + two + " has 2"));
  CHECK(contains(files.error({two, latin}), latin + ":2: is not UTF-8: byte 1 of the text is 0xE4"));
  CHECK(contains(files.error({empty, two}), empty + ": no text: the size is 0 bytes"));
  CHECK(contains(files.error({"-", two}), "standard input: no text: the size is 0 bytes"));
  const std::string packed = files.write("packed", "\x1F\x8B\x08 gzip");
  CHECK(contains(run_program({"bleu", "-", two}, "", packed).err, "a stream cannot be compressed"));
  CHECK(contains(run_program({"bleu", "-", two}, "", files.folder.path().string()).err,
                 "standard input: is closed or a folder"));
  CHECK(contains(files.error({two, two + ".missing"}), "two.missing"));
  CHECK(contains(files.error({files.write("wide", encoded(std::u16string(u"a\nb\n"))), two}),
                 "is UTF-16, expected UTF-8"));
  CHECK(contains(files.error({files.write("long", std::string((1 << 20) + 1, 'a')), two}),
                 "long:1: the line has 1048577 bytes, expected at most 1048576"));
  CHECK(contains(files.error({two, "/dev/zero"}), "/dev/zero: a line has more than 1048576 bytes"));
  CHECK(contains(files.error({two}, 2), "REFERENCE"));
  CHECK(contains(files.error({two, "-"}, 2), "only HYPOTHESIS can be \"-\""));
  CHECK(contains(files.error({two, two, "--tokenize", "zh"}, 2),
                 "expected one of \"13a\", \"intl\", \"none\", \"char\", got \"zh\""));
}
