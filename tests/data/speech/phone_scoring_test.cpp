#include "data/speech/phones/phone_scoring.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/random/rng.h"
#include "data/files/text_lines.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

Words random_phones(uint64_t salt, uint64_t longest) {
  const RandomStream stream(11, "phones", salt);
  Words phones(stream.uniform_below(0, longest + 1));
  for (size_t i = 0; i < phones.size(); ++i)
    phones[i] = std::string(1, static_cast<char>('a' + stream.uniform_below(i + 1, 5)));
  return phones;
}

// Returns the Levenshtein distance between the suffix of `a` from index i and the suffix of `b` from index j,
// by its recursive definition.
int64_t distance(const Words& a, const Words& b, size_t i = 0, size_t j = 0) {
  if (i == a.size() || j == b.size()) return static_cast<int64_t>(a.size() - i + b.size() - j);
  return std::min({distance(a, b, i + 1, j + 1) + (a[i] != b[j]), distance(a, b, i + 1, j) + 1,
                   distance(a, b, i, j + 1) + 1});
}

}  // namespace

TEST_CASE("line() has the format of Kaldi") {
  PhoneScore score;
  score.substitution_count = 756;
  score.deletion_count = 401;
  score.insertion_count = 173;
  score.reference_count = 7215;
  CHECK(score.format_line() == "%PER 18.43 [ 1330 / 7215, 173 ins, 401 del, 756 sub ]");
}

TEST_CASE("alignments have the minimum number of errors and contain both sequences") {
  for (uint64_t i = 0; i < 200; ++i) {
    const Words said = random_phones(2 * i, 6), heard = random_phones(2 * i + 1, 6);
    PhoneScore score;
    score.add(said, heard);
    CHECK(score.error_count() == distance(said, heard));
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

TEST_CASE("substitutions, deletions, insertions and confusions are counted") {
  PhoneScore score, second_score;
  score.add({"a", "b", "c"}, {"a", "x", "c", "d"});
  second_score.add({"a", "b"}, {"a"});
  second_score.add({"b", "a"}, {"x", "a"});
  second_score.add({"a"}, {"a"});
  score.add(second_score);
  CHECK(score.format_line() == "%PER 50.00 [ 4 / 8, 1 ins, 1 del, 2 sub ]");
  CHECK(score.utterance_count == 4);
  CHECK(score.wrong_utterance_count == 3);
  const auto worst = score.find_most_frequent_errors(2);
  REQUIRE(worst.size() == 2);
  CHECK(worst[0] == std::pair<std::string, int64_t>("b -> x", 2));
  CHECK(worst[1] == std::pair<std::string, int64_t>("(inserted) -> d", 1));
  CHECK(format_alignment(align_phones({"aa", "b"}, {"aa", "b", "c"})) == "REF: aa b ***\nHYP: aa b c  \n");
  PhoneScore empty;
  empty.add({}, {});
  CHECK(empty.error_rate_percent() == 0);
  empty.add({}, {"a"});
  CHECK(std::isinf(empty.error_rate_percent()));
}

// Replaces some phones by symbols of espeak-ng and X-SAMPA, to test that sclite counts them as ordinary
// phones. "@" and "(x)" have a special meaning in the input of sclite, and "r" and "R" differ only in case.
void mark(Words& phones) {
  static const std::map<std::string, std::string> kNames = {{"a", "@"}, {"b", "{"},   {"c", "r"},
                                                            {"d", "R"}, {"x", "(x)"}, {"y", ";;"}};
  for (std::string& phone : phones)
    if (const auto found = kNames.find(phone); found != kNames.end()) phone = found->second;
}

namespace {

// Returns the numbers of substitutions, deletions and insertions of an alignment.
std::array<int64_t, 3> counts_of(const std::vector<AlignedPhone>& alignment) {
  std::array<int64_t, 3> counts{};
  for (const AlignedPhone& pair : alignment) {
    if (pair.reference == pair.hypothesis) continue;
    ++counts[pair.reference.empty() ? 2 : pair.hypothesis.empty() ? 1 : 0];
  }
  return counts;
}

int64_t weighted(const std::array<int64_t, 3>& counts) {
  return kScliteWeights.substitution * counts[0] + kScliteWeights.deletion * counts[1] +
         kScliteWeights.insertion * counts[2];
}

// Returns pairs of random sequences over alphabets of 1 to 12 phones. Some sequences are empty.
std::vector<ScoredUtterance> random_pairs(uint64_t count) {
  std::vector<ScoredUtterance> pairs;
  for (uint64_t i = 0; i < count; ++i) {
    const RandomStream stream(11, "pairs", i);
    const uint64_t alphabet = 1 + stream.uniform_below(0, 12);
    Words said, heard;
    for (uint64_t k = stream.uniform_below(1, 25) + 1; k > 0; --k)
      said.push_back(std::string(1, static_cast<char>('a' + stream.uniform_below(100 + k, alphabet))));
    for (uint64_t k = stream.uniform_below(2, 25); k > 0; --k)
      heard.push_back(std::string(1, static_cast<char>('a' + stream.uniform_below(200 + k, alphabet))));
    mark(said), mark(heard);
    pairs.push_back({"spk-" + std::to_string(i), said, heard});
  }
  return pairs;
}

// Runs sclite, and returns the numbers of substitutions, deletions and insertions by the id of the utterance.
// For each utterance, sclite prints the lines "id: (spk-7)" and "Scores: (#C #S #D #I) c s d i".
std::map<std::string, std::array<int64_t, 3>> sclite_counts(const std::filesystem::path& folder) {
  const std::string command =
      "cd '" + folder.string() +
      "' && sctk sclite -s -r ref.trn trn -h hyp.trn trn -i rm -o pra stdout > out.txt 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  std::map<std::string, std::array<int64_t, 3>> counts;
  std::string id;
  for (const TextLine& line : read_lines(folder / "out.txt")) {
    const Words words = split_words(line.text);
    if (words.size() == 2 && words[0] == "id:") id = words[1].substr(1, words[1].size() - 2);
    if (words.size() == 9 && words[0] == "Scores:")
      counts[id] = {std::stol(words[6]), std::stol(words[7]), std::stol(words[8])};
  }
  return counts;
}

}  // namespace

TEST_CASE("alignments of 1,000 random pairs with the weights of sclite have the counts of sclite") {
  if (std::system("command -v sctk >/dev/null 2>&1")) {
    MESSAGE("skipped: sctk is not installed");
    return;
  }
  const TempDir dir;
  const auto pairs = random_pairs(1000);
  const auto [reference, hypothesis] = format_trn(pairs);
  write_file(dir / "ref.trn", reference);
  write_file(dir / "hyp.trn", hypothesis);
  const auto found = sclite_counts(dir.path());
  REQUIRE(found.size() == pairs.size());
  int64_t our_errors = 0, sclite_errors = 0, worse_pairs = 0;
  for (const ScoredUtterance& pair : pairs) {
    const auto& counts = found.at(pair.id);
    const int64_t errors = counts[0] + counts[1] + counts[2];
    CAPTURE(pair.id);
    // Alignments with different counts can have the same smallest weighted sum, so only the sums are
    // compared.
    CHECK(weighted(counts) ==
          weighted(counts_of(align_phones(pair.reference, pair.hypothesis, kScliteWeights))));
    PhoneScore score;
    score.add(pair.reference, pair.hypothesis);
    CHECK(errors >= score.error_count());
    CHECK(counts[1] - counts[2] == score.deletion_count - score.insertion_count);
    worse_pairs += errors > score.error_count();
    our_errors += score.error_count();
    sclite_errors += errors;
  }
  MESSAGE("errors: ours " << our_errors << ", sclite " << sclite_errors << "; sclite counts more in "
                          << worse_pairs << " of " << pairs.size() << " pairs");
  // Negative control: for some pairs, the weights of sclite lead to more errors than equal weights.
  CHECK(worse_pairs > 10);
}

TEST_CASE(
    "three deletions and three insertions cost less than five substitutions only with the weights of "
    "sclite") {
  const Words said = {"a", "b", "c", "d", "e"}, heard = {"x", "y", "z", "a", "b"};
  CHECK(counts_of(align_phones(said, heard)) == std::array<int64_t, 3>{5, 0, 0});
  CHECK(counts_of(align_phones(said, heard, kScliteWeights)) == std::array<int64_t, 3>{0, 3, 3});
}
