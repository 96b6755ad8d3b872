// A benchmark of `transcribe --stream`. The benchmark concatenates recordings of a corpus into streams, and
// compares the phone error rate on the streams with the phone error rate on the separate recordings.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/base/errors.h"
#include "core/system/machine.h"
#include "data/files/command.h"
#include "tests/bench/benchmarks.h"
#include "train/bench/measure.h"
#include "train/tasks/registry/load_task.h"
#include "train/tasks/speech/data.h"
#include "train/tasks/speech/features.h"
#include "train/tasks/speech/streaming.h"

namespace tapeformer {
namespace {

using Labels = std::vector<int64_t>;
using Samples = std::vector<int16_t>;

struct Clip {
  Samples samples;
  Labels labels;
  int64_t errors = 0;  // phone errors if the clip is transcribed alone
};

struct Counts {
  int64_t errors = 0, insertions = 0, deletions = 0;
};

Samples to_samples(const std::vector<float>& values) {
  Samples samples;
  for (const float value : values)
    samples.push_back(static_cast<int16_t>(std::clamp(std::lround(value * 32768), -32768L, 32767L)));
  return samples;
}

// Returns the counts of an alignment of `reference` and `hypothesis` with the fewest errors. Stores only one
// row of the alignment table, because the table of an hour-long stream with tens of thousands of phones would
// be too large.
Counts count_errors(const Labels& reference, const Labels& hypothesis) {
  std::vector<Counts> row(hypothesis.size() + 1);
  for (size_t h = 0; h < row.size(); ++h) row[h] = {static_cast<int64_t>(h), static_cast<int64_t>(h), 0};
  for (const int64_t label : reference) {
    Counts diagonal = row[0];
    ++row[0].errors;
    ++row[0].deletions;
    for (size_t h = 1; h < row.size(); ++h) {
      Counts best = diagonal;
      best.errors += label != hypothesis[h - 1];
      const Counts above = row[h], left = row[h - 1];
      if (above.errors + 1 < best.errors) best = {above.errors + 1, above.insertions, above.deletions + 1};
      if (left.errors + 1 < best.errors) best = {left.errors + 1, left.insertions + 1, left.deletions};
      diagonal = above;
      row[h] = best;
    }
  }
  return row.back();
}

// A thread that writes samples to a socket, as another program would write them to a pipe. `parts` must
// outlive the Writer.
class Writer {
 public:
  explicit Writer(const std::vector<const Samples*>& parts) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
      throw std::runtime_error("bench stream: cannot create a socket");
    read_end_ = ends[0];
    thread_ = std::thread([&parts, end = ends[1]] {
      for (const Samples* part : parts)
        if (!write_all(end, *part)) break;
      close(end);
    });
  }
  // Closes the reading end first, so that a blocked write fails and the thread ends.
  ~Writer() {
    close(read_end_);
    thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  int read_end() const { return read_end_; }

 private:
  static bool write_all(int descriptor, const Samples& samples) {
    const auto* bytes = reinterpret_cast<const char*>(samples.data());
    for (size_t left = samples.size() * sizeof(int16_t); left > 0;) {
      const ssize_t count = send(descriptor, bytes, left, MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes += count;
      left -= static_cast<size_t>(count);
    }
    return true;
  }

  int read_end_ = -1;
  std::thread thread_;
};

Labels transcribe(const SpeechTask& task, StreamDecoder& decoder, const std::vector<const Samples*>& parts) {
  const Writer writer(parts);
  FeatureStream input(SpeechCorpus(task.config()), task.metadata(),
                      AudioPipe{.descriptor = writer.read_end(), .is_raw = true});
  decoder.reset();
  Labels labels;
  for (Tensor rows = input.read_frames(); rows.defined(); rows = input.read_frames())
    for (int64_t row = 0; row < rows.size(0); ++row)
      for (const int64_t label :
           decoder.push(rows.view({1, rows.size(1)}, {rows.size(1), 1}, row * rows.size(1))))
        labels.push_back(label);
  return labels;
}

// Returns the labels of phones. Phones that do not occur in the training data get the label -1, which differs
// from every prediction.
Labels find_labels(const Words& phones, const PhoneTable& table) {
  Labels labels;
  for (const std::string& phone : phones)
    labels.push_back(table.contains(phone) ? table.get_class_index(phone) : int64_t{-1});
  return labels;
}

// Reads the recordings of the split that --split names, and counts the phone errors in each recording. Skips
// utterances that are faulty, that are stored as features, or that are only a segment of a recording. Throws
// DataError if no recordings remain. The decoder processes each recording with one recurrent state, so the
// number of errors does not depend on the option --window.
std::vector<Clip> read_clips(const SpeechTask& task, const BenchmarkArguments& arguments) {
  const Corpus corpus = SpeechCorpus(task.config(), arguments.data_access)
                            .read_part(arguments.options.get<std::string>("split"));
  AudioOptions options = SpeechCorpus(task.config()).make_feature_options(false).make_audio_options();
  const auto channel = options.channel;
  const auto decoder = make_stream_decoder(task, 0);
  std::vector<Clip> clips;
  Faults faults;
  for (const Utterance& u : corpus.utterances) {
    const bool whole = u.source == SpeechSource::audio && u.begin_seconds == 0 && !u.end_seconds;
    if (!whole) faults.push_back(u.location + ": is not a whole recording");
    if (!u.fault.empty()) faults.push_back(u.fault);
    if (!u.fault.empty() || !whole) continue;
    std::optional<CommandOutput> output;
    if (!u.command.empty()) output.emplace(u.command);
    options.channel = u.channel ? u.channel : channel;
    const Audio audio = read_audio(output ? output->path() : u.path, options);
    Clip clip{to_samples(audio.samples), find_labels(u.phones, task.metadata().phone_table)};
    clip.errors = count_errors(clip.labels, transcribe(task, *decoder, {&clip.samples})).errors;
    clips.push_back(std::move(clip));
  }
  if (clips.empty()) throw_with_faults(corpus.name + ": has no whole recordings", faults);
  return clips;
}

Samples make_pause(double seconds, double decibels, int64_t rate) {
  const RandomStream noise(kInputSeed, "bench stream pause");
  std::vector<float> values(static_cast<size_t>(std::llround(seconds * static_cast<double>(rate))));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::pow(10, decibels / 20) * noise.normal(i));
  return to_samples(values);
}

Report measure(const SpeechTask& task, StreamDecoder& decoder, const std::vector<Clip>& clips,
               const Samples& pause, double seconds) {
  const auto rate =
      static_cast<double>(SpeechCorpus(task.config()).make_feature_options(false).filterbank.rate);
  std::vector<const Samples*> parts;
  Labels reference;
  double length = 0;
  int64_t errors_alone = 0;
  const RandomStream order(kInputSeed, "bench stream order");
  for (uint64_t n = 0; length < seconds; ++n) {
    const Clip& clip = clips[static_cast<size_t>(order.uniform(n) * static_cast<double>(clips.size()))];
    parts.insert(parts.end(), {&clip.samples, &pause});
    length += static_cast<double>(clip.samples.size() + pause.size()) / rate;
    reference.insert(reference.end(), clip.labels.begin(), clip.labels.end());
    errors_alone += clip.errors;
  }
  Labels labels;
  const double took = measure_call_seconds([&] { labels = transcribe(task, decoder, parts); });
  const Counts counts = count_errors(reference, labels);
  const double percent = 100 / static_cast<double>(std::max<size_t>(reference.size(), 1));
  return Report()
      .add("seconds", length)
      .add("phones", static_cast<int64_t>(reference.size()))
      .add("per_one_by_one", percent * static_cast<double>(errors_alone))
      .add("per_stream", percent * static_cast<double>(counts.errors))
      .add("insertions", counts.insertions)
      .add("deletions", counts.deletions)
      .add("restarts", decoder.restart_count())
      .add("real_time_factor", took / length)
      .add("peak_memory_bytes", get_peak_resident_bytes());
}

Report run_stream(const BenchmarkArguments& arguments) {
  const NoGradScope no_grad;
  const auto& path = arguments.options.get<std::string>("run");
  if (path.empty()) throw ConfigError("bench stream needs --run, the run directory of a speech model");
  const auto lengths = parse_index_list("seconds", arguments.options.get<std::string>("seconds"));
  if (std::find(lengths.begin(), lengths.end(), 0) != lengths.end())
    throw ConfigError("--seconds: expected lengths of at least 1, got 0");
  const LoadedTask loaded = load_task({.path = path, .device = arguments.device});
  const auto& task = loaded.as<SpeechTask>();
  const auto decoder = make_stream_decoder(task, arguments.options.get<double>("window"));
  const std::vector<Clip> clips = read_clips(task, arguments);
  const Samples pause =
      make_pause(arguments.options.get<double>("pause"), arguments.options.get<double>("noise-db"),
                 SpeechCorpus(task.config()).make_feature_options(false).filterbank.rate);
  std::vector<Report> rows;
  for (const int64_t seconds : lengths)
    rows.push_back(measure(task, *decoder, clips, pause, static_cast<double>(seconds)));
  return Report()
      .add("recordings", static_cast<int64_t>(clips.size()))
      .add("state_bytes", decoder->state_bytes())
      .add("streams", rows);
}

}  // namespace

Benchmark make_speech_stream_benchmark() {
  return {
      .name = "stream",
      .summary = "phone error rate of transcribe --stream at several lengths of the stream",
      .options = {{.name = "run", .default_value = std::string(), .help = "run directory of the model"},
                  {.name = "split",
                   .default_value = std::string("test"),
                   .help = "part of the corpus with the recordings",
                   .choices = {"train", "valid", "test"}},
                  {.name = "seconds",
                   .default_value = std::string("10,60,780"),
                   .help =
                       "lengths of the streams; a stream ends after the recording that reaches its length"},
                  {.name = "pause",
                   .default_value = 0.5,
                   .help = "seconds of noise after each recording",
                   .min = 0,
                   .max = 3600},
                  {.name = "noise-db",
                   .default_value = -60.0,
                   .help = "level of the noise in decibels relative to full scale",
                   .min = -200,
                   .max = 0},
                  make_window_option(),
                  make_allow_commands_option()},
      .run = run_stream};
}

}  // namespace tapeformer
