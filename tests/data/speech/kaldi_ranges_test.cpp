// Tests of parts of matrices and recordings in Kaldi data directories: ranges in feats.scp, and segments with
// channels and with ends after their recordings.
#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "data/audio/audio.h"
#include "data/speech/dataset.h"
#include "data/speech/kaldi_directory.h"
#include "tests/data/speech/kaldi_files.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Writes f.ark with a matrix of 4 x 3 elements, whose elements are 0 to 11. Its offset is 2.
void write_archive(const fs::path& path) {
  std::vector<float> values(12);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  write_file(path, "a " + matrix_bytes<float>("FM", 4, 3, values));
}

// Writes two recordings of one second with a rate of 8 kHz and two channels: silence, and a ramp.
void write_stereo(const fs::path& path) {
  std::vector<float> samples(16000, 0.0f);
  const std::vector<float> ramp = ramps(8000);
  for (size_t i = 0; i < ramp.size(); ++i) samples[2 * i + 1] = ramp[i];
  write_wav(path, samples, 8000);
  std::string bytes = read_file(path);
  bytes[22] = 2;  // number of channels
  bytes[32] = 4;  // number of bytes per frame
  write_file(path, bytes);
}

}  // namespace

TEST_CASE("feats.scp names archives with spaces and parts of their matrices") {
  const TempDir dir;
  const fs::path archive = dir / "my  corpus/f 1.ark";
  write_archive(archive);
  write_file(dir / "text", std::string("a AH B\n"));
  const auto read = [&](const std::string& range) {
    write_file(dir / "feats.scp", "a  " + archive.string() + ":2" + range + "\n");
    const Corpus corpus = read_kaldi_directory(dir.path());
    return compute_features(corpus.utterances.at(0), {}, Filterbank({})).to_vector();
  };
  using Values = std::vector<double>;
  CHECK(read("").size() == 12);
  CHECK(read("[1:2]") == Values{3, 4, 5, 6, 7, 8});
  CHECK(read("[3:3]") == Values{9, 10, 11});
  CHECK(read("[2:3,1:2]") == Values{7, 8, 10, 11});
  CHECK(read("[:,0:0]") == Values{0, 3, 6, 9});
  CHECK(read("[2:,2:]") == Values{8, 11});
  CHECK(read("[:1]") == Values{0, 1, 2, 3, 4, 5});
  CHECK(read("[3:6]") == Values{9, 10, 11});  // the end may exceed the matrix by 3 rows
  CHECK(find_kaldi_faults(dir.path()).empty());
  for (const char* outside : {"[0:7]", "[4:4]", "[4:6]", "[0:1,0:3]", "[0:1,3:3]"}) {
    CAPTURE(outside);
    CHECK(contains(message_of<DataError>([&] { read(outside); }), "is outside of the matrix of 4 x 3"));
    REQUIRE(find_kaldi_faults(dir.path()).size() == 1);
    CHECK(contains(find_kaldi_faults(dir.path())[0], "feats.scp:1: " + archive.string() + ": offset 2: "));
  }
  for (const char* invalid : {"[]", "[1]", "[2:1]", "[0:1:2]", "[-1:2]", "[0:1,]", "[0:1,1:0]", "[a:b]",
                              "[0:99999999999999999999]", "[0:1,0:1,0:1]"}) {
    CAPTURE(invalid);
    CHECK(contains(message_of<DataError>([&] { read(invalid); }), "feats.scp:1: expected a range such as"));
  }
  write_file(dir / "feats.scp", "a " + (dir / "no such.ark").string() + ":2\n");
  CHECK(read_kaldi_directory(dir.path()).utterances.size() == 1);
  CHECK(contains(find_kaldi_faults(dir.path()).at(0), "no such.ark: no such file"));
}

TEST_CASE("a segment names its channel, and ends with its recording if it exceeds it by less than 0.5 s") {
  const TempDir dir;
  write_stereo(dir / "r.wav");
  write_file(dir / "wav.scp", std::string("r r.wav\n"));
  write_file(dir / "text", std::string("a A\nb B\n"));
  const auto features = [&](const std::string& line, FeatureCut* cut = nullptr) {
    write_file(dir / "segments", "a r " + line + "\nb r 0 1 1\n");
    FeatureOptions options;
    options.filterbank.rate = 8000;
    const Corpus corpus = read_kaldi_directory(dir.path());
    return compute_features(corpus.utterances.at(0), options, Filterbank(options.filterbank), 0, cut);
  };
  const Tensor whole = features("0 1 1");
  CHECK(whole.size(0) == 98);
  CHECK(contains(message_of<DataError>([&] { features("0 1 0"); }), "is silent"));
  CHECK(contains(message_of<DataError>([&] { features("0 1"); }), "has 2 channels, expected 1"));
  CHECK(contains(message_of<DataError>([&] { features("0 1 2"); }), "has no channel 2"));
  CHECK(features("0 -1 1").to_vector() == whole.to_vector());
  FeatureCut cut;
  CHECK(features("0 1.499 1", &cut).to_vector() == whole.to_vector());
  CHECK(cut.seconds == doctest::Approx(0.499));
  CHECK(describe_cuts({cut, {}, {.seconds = 0.1}}) ==
        "1 segments end up to 0.499 s after their recordings and are cut");
  CHECK(describe_cuts({{.seconds = 0, .rows = 2}, {.seconds = 0, .rows = 3}}) ==
        "2 ranges end up to 3 rows after their matrices and are cut");
  CHECK(describe_cuts({{}, {.seconds = 0.1}}).empty());
  CHECK(contains(message_of<DataError>([&] { features("0 1.5 1"); }), "the segment ends at 1.5 s, outside"));
  CHECK(contains(message_of<DataError>([&] { features("1 1.2 1"); }), "the segment begins at 1 s, outside"));
  features("0 1.2 1");
  CHECK(find_kaldi_faults(dir.path()).empty());
}

TEST_CASE("the key of a feature cache depends on channels and ranges") {
  Corpus corpus;
  corpus.utterances.resize(1);
  const std::string key = make_cache_key(corpus, {});
  corpus.utterances[0].channel = 0;
  const std::string other = make_cache_key(corpus, {});
  CHECK(other != key);
  corpus.utterances[0].matrix_range.last_row = 3;
  CHECK(make_cache_key(corpus, {}) != other);
}
