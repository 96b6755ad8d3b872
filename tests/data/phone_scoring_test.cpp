#include "data/phone_scoring.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/rng.h"
#include "data/text_lines.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

Words random_phones(uint64_t salt, uint64_t longest) {
  const RandomStream stream(11, "phones", salt);
  Words phones(stream.below(0, longest + 1));
  for (size_t i = 0; i < phones.size(); ++i)
    phones[i] = std::string(1, static_cast<char>('a' + stream.below(i + 1, 5)));
  return phones;
}

// The definition, by recursion.
int64_t distance(const Words& a, const Words& b, size_t i = 0, size_t j = 0) {
  if (i == a.size() || j == b.size()) return static_cast<int64_t>(a.size() - i + b.size() - j);
  return std::min({distance(a, b, i + 1, j + 1) + (a[i] != b[j]), distance(a, b, i + 1, j) + 1,
                   distance(a, b, i, j + 1) + 1});
}

}  // namespace

TEST_CASE("the line is Kaldi's") {
  PhoneScore score;
  score.substitutions = 756;
  score.deletions = 401;
  score.insertions = 173;
  score.reference = 7215;
  CHECK(score.line() == "%PER 18.43 [ 1330 / 7215, 173 ins, 401 del, 756 sub ]");
}

TEST_CASE("alignments have the fewest errors and hold both sequences") {
  for (uint64_t i = 0; i < 200; ++i) {
    const Words said = random_phones(2 * i, 6), heard = random_phones(2 * i + 1, 6);
    PhoneScore score;
    score.add(said, heard);
    CHECK(score.errors() == distance(said, heard));
    Words first, second;
    for (const auto& [a, b] : align_phones(said, heard)) {
      CHECK(!(a.empty() && b.empty()));
      if (!a.empty()) first.push_back(a);
      if (!b.empty()) second.push_back(b);
    }
    CHECK(first == said);
    CHECK(second == heard);
  }
}

TEST_CASE("substitutions, deletions and insertions are counted apart, with confusions") {
  PhoneScore score, more;
  score.add({"a", "b", "c"}, {"a", "x", "c", "d"});
  more.add({"a", "b"}, {"a"});
  more.add({"b", "a"}, {"x", "a"});
  more.add({"a"}, {"a"});
  score.add(more);
  CHECK(score.line() == "%PER 50.00 [ 4 / 8, 1 ins, 1 del, 2 sub ]");
  CHECK(score.utterances == 4);
  CHECK(score.wrong == 3);
  const auto worst = score.worst(2);
  REQUIRE(worst.size() == 2);
  CHECK(worst[0] == std::pair<std::string, int64_t>("b -> x", 2));
  CHECK(worst[1] == std::pair<std::string, int64_t>("(inserted) -> d", 1));
  CHECK(alignment_text(align_phones({"aa", "b"}, {"aa", "b", "c"})) == "REF: aa b ***\nHYP: aa b c  \n");
  PhoneScore empty;
  empty.add({}, {});
  CHECK(empty.error_rate() == 0);
  empty.add({}, {"a"});
  CHECK(std::isinf(empty.error_rate()));
}

// Names that espeak-ng and X-SAMPA have, and sclite reads as marks or takes for each other.
void mark(Words& phones) {
  static const std::map<std::string, std::string> kNames = {{"a", "@"}, {"b", "{"},   {"c", "r"},
                                                            {"d", "R"}, {"x", "(x)"}, {"y", ";;"}};
  for (std::string& phone : phones)
    if (const auto found = kNames.find(phone); found != kNames.end()) phone = found->second;
}

TEST_CASE("totals of 1,000 random pairs are sclite's") {
  if (std::system("command -v sctk >/dev/null 2>&1")) {
    MESSAGE("skipped: sctk is not installed");
    return;
  }
  const TempDir dir;
  std::vector<ScoredUtterance> utterances;
  PhoneScore score;
  for (uint64_t i = 0; i < 1000; ++i) {
    Words said = random_phones(5000 + i, 20), heard;
    if (said.empty()) said = {"a"};
    // What was said with an error in one phone of four, so that the least cost is the same for any sane
    // weights.
    const RandomStream stream(7, "errors", i);
    for (size_t k = 0; k < said.size(); ++k) {
      const uint64_t kind = stream.below(2 * k, 12);
      if (kind == 0) continue;
      heard.push_back(kind == 1 ? "x" : said[k]);
      if (kind == 2) heard.push_back("y");
    }
    mark(said), mark(heard);
    score.add(said, heard);
    utterances.push_back({"spk-" + std::to_string(i), said, heard});
  }
  write_trn_files(dir.path(), utterances);
  const std::string command =
      "cd '" + dir.path().string() +
      "' && sctk sclite -s -r ref.trn trn -h hyp.trn trn -i rm -o rsum stdout > out.txt 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  // "| Sum | sentences words | correct sub del ins errors sentence-errors |", raw counts.
  bool found = false;
  for (const TextLine& line : read_lines(dir / "out.txt")) {
    std::string text = line.text;
    std::replace(text.begin(), text.end(), '|', ' ');
    const Words words = split_words(text);
    if (words.size() < 9 || words[0] != "Sum") continue;
    found = true;
    CHECK(std::stol(words[1]) == 1000);
    CHECK(std::stol(words[2]) == score.reference);
    CHECK(std::stol(words[7]) == score.errors());
    CHECK(std::stol(words[8]) == score.wrong);
  }
  CHECK(found);
  CHECK(score.errors() > 1000);
}
